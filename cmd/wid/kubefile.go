package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeFile is more than any kubeconfig has, or any file that it names, in bytes.
const maxKubeFile = 16 << 20

// kubeFile is a kubeconfig and one of its contexts. Empty: those that kubectl would take.
type kubeFile struct{ path, context string }

func (k kubeFile) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.path
	return rules
}

// config is for clients of the cluster.
func (k kubeFile) config() (*rest.Config, error) {
	config, _, err := k.configAndNamespace()
	return config, err
}

// configAndNamespace also returns the namespace of the context, "default" if it names none. It reads a pipe once.
func (k kubeFile) configAndNamespace() (*rest.Config, string, error) {
	loader, err := k.load()
	if err != nil {
		return nil, "", err
	}
	if err := k.checkNamed(loader); err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	boundAnswers(config)
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

// load leaves files to client-go, once it is known that they have an end. A pipe is read here: client-go would
// read it for as long as somebody writes.
func (k kubeFile) load() (clientcmd.ClientConfig, error) {
	rules := k.rules()
	overrides := &clientcmd.ConfigOverrides{CurrentContext: k.context}
	files := rules.GetLoadingPrecedence()
	for _, file := range files {
		switch pipe, err := checkKubeFile(file); {
		case err != nil:
			return nil, err
		case pipe && len(files) > 1:
			return nil, fmt.Errorf("%.300q is a pipe, which cannot be merged with other files", file)
		case pipe:
			config, err := readKubePipe(file)
			if err != nil {
				return nil, err
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
		return false, fmt.Errorf("%.300q is a directory", name)
	case mode&os.ModeNamedPipe != 0:
		return true, nil
	case mode&os.ModeDevice != 0:
		return false, fmt.Errorf("%.300q is a device", name)
	case !mode.IsRegular():
		return false, fmt.Errorf("%.300q is not a file", name)
	case info.Size() > maxKubeFile:
		return false, kubeFileTooLarge(name)
	}
	return false, nil
}

// checkNamed does that for the files that the kubeconfig names for the cluster and the user. They are read more than
// once, so they cannot be pipes.
func (k kubeFile) checkNamed(config clientcmd.ClientConfig) error {
	raw, err := config.RawConfig()
	if err != nil {
		return nil //nolint:nilerr // ClientConfig tells
	}
	current := raw.CurrentContext
	if k.context != "" {
		current = k.context
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
			err = fmt.Errorf("%.300q, which the kubeconfig names, is a pipe", file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
