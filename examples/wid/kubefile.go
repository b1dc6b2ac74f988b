package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeFile is more than any kubeconfig has, or any file that it names, in bytes.
const maxKubeFile = 16 << 20

// kubeRules say where the kubeconfig is.
func (id *identity) kubeRules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = id.kubeconfig
	return rules
}

// loadKubeconfig leaves files to client-go, once it is known that they have an end. A pipe is read here: client-go would
// read it for as long as somebody writes.
func (id *identity) loadKubeconfig() (clientcmd.ClientConfig, error) {
	rules := id.kubeRules()
	overrides := &clientcmd.ConfigOverrides{CurrentContext: id.kubeContext}
	files := rules.GetLoadingPrecedence()
	for _, file := range files {
		switch pipe, err := checkKubeFile(file); {
		case err != nil:
			return nil, err
		case pipe && len(files) > 1:
			return nil, noCluster(fmt.Errorf("%.300q is a pipe, which cannot be merged with other files", file))
		case pipe:
			config, err := readKubePipe(file)
			if err != nil {
				return nil, noCluster(err)
			}
			return clientcmd.NewNonInteractiveClientConfig(*config, "", overrides, rules), nil
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}

// readKubePipe reads a kubeconfig that another program writes, such as <(…) of the shell.
func readKubePipe(name string) (*clientcmdapi.Config, error) {
	content, err := readAtMost(name, maxKubeFile)
	if errors.Is(err, errTooLarge) {
		return nil, kubeFileTooLarge(name)
	}
	if err != nil {
		return nil, err
	}
	return clientcmd.Load(content)
}

func kubeFileTooLarge(name string) error {
	return fmt.Errorf("%.300q is larger than %d bytes", name, maxKubeFile)
}

// checkKubeFile refuses what client-go would read without end, and tells what is a pipe. What does not exist is left for
// client-go to tell.
func checkKubeFile(name string) (pipe bool, err error) {
	info, err := os.Stat(name)
	if name == "" || err != nil {
		return false, nil //nolint:nilerr // client-go tells
	}
	null, err := os.Stat(os.DevNull)
	switch mode := info.Mode(); {
	case err == nil && os.SameFile(info, null):
		return false, nil
	case mode.IsDir():
		return false, noCluster(fmt.Errorf("%.300q is a directory", name))
	case mode&os.ModeNamedPipe != 0:
		return true, nil
	case mode&os.ModeDevice != 0:
		return false, noCluster(fmt.Errorf("%.300q is a device", name))
	case !mode.IsRegular():
		return false, noCluster(fmt.Errorf("%.300q is not a file", name))
	case info.Size() > maxKubeFile:
		return false, noCluster(kubeFileTooLarge(name))
	}
	return false, nil
}

// checkKubeFiles does that for the files that the kubeconfig names for the cluster and the user. They are read more than
// once, so they cannot be pipes.
func (id *identity) checkKubeFiles(config clientcmd.ClientConfig) error {
	raw, err := config.RawConfig()
	if err != nil {
		return nil //nolint:nilerr // ClientConfig tells
	}
	current := raw.CurrentContext
	if id.kubeContext != "" {
		current = id.kubeContext
	}
	pair, cluster, user := raw.Contexts[current], &clientcmdapi.Cluster{}, &clientcmdapi.AuthInfo{}
	if pair != nil && raw.Clusters[pair.Cluster] != nil {
		cluster = raw.Clusters[pair.Cluster]
	}
	if pair != nil && raw.AuthInfos[pair.AuthInfo] != nil {
		user = raw.AuthInfos[pair.AuthInfo]
	}
	for _, file := range []string{cluster.CertificateAuthority, user.ClientCertificate, user.ClientKey, user.TokenFile} {
		pipe, err := checkKubeFile(file)
		if pipe {
			err = noCluster(fmt.Errorf("%.300q, which the kubeconfig names, is a pipe", file))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
