package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth"
)

func (a *app) newKubeconfig() *cobra.Command {
	var t target
	var file, name, command string
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write a kubeconfig for a cluster, whose credentials wid gets whenever kubectl needs one",
		Long: "Write a kubeconfig for a cluster, whose credentials wid gets whenever kubectl needs one. The file itself holds\n" +
			"no secret. Access is tried first: address and certificate authority come from the provider, unless they are given.",
		Example: "  wid kubeconfig --provider aws --service-account tenant-a/app --kubeconfig ~/.kube/config \\\n" +
			"    --cluster arn:aws:eks:eu-central-1:123456789012:cluster/prod -f prod.yaml\n" +
			"  kubectl --kubeconfig prod.yaml get namespaces",
		Args: exactly(cobra.NoArgs),
	}
	id := a.newIdentity(cmd)
	t.bind(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write, mode 0600; standard output otherwise")
	cmd.Flags().StringVar(&name, "name", "wid", "name of cluster, user and context in the kubeconfig")
	cmd.Flags().StringVar(&command, "command", "", "what kubectl is to run; wid if that is on the PATH, else this very program")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) {
			content, err := id.writeKubeconfig(ctx, t, name, command)
			if err != nil || file == "" {
				return content, err
			}
			return nil, id.save(file, content)
		})
	}
	return cmd
}

func (id *identity) writeKubeconfig(ctx context.Context, t target, name, command string) ([]byte, error) {
	if id.tokenStdin {
		return nil, usagef("a token from standard input is gone when kubectl runs; use --token-file or --service-account")
	}
	id.clusterAddress = t.address
	if u, err := url.Parse(id.proxyURL); err == nil && u.User != nil {
		return nil, usagef("the kubeconfig would hold the password of --proxy-url; set HTTPS_PROXY where kubectl runs instead")
	}
	provider, err := id.named()
	if err != nil {
		return nil, err
	}
	args, err := id.execArgs(t)
	if err != nil {
		return nil, err
	}
	ca, err := t.ca()
	if err != nil {
		return nil, err
	}
	s, err := id.resolve(ctx, nil)
	if err != nil {
		return nil, err
	}
	access, err := auth.GetRESTConfig(ctx, provider, append(s.opts, t.options(ca)...)...)
	if err != nil {
		return nil, err
	}
	if command == "" {
		if command, err = ownCommand(); err != nil {
			return nil, err
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: access.Host(), CertificateAuthorityData: access.CAData()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: command, Args: args,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode, ProvideClusterInfo: true,
		InstallHint: "wid is the command line of github.com/workloadid/workloadid",
	}}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// execArgs are the arguments with which kubectl calls wid: what this call was told, wherever that was from.
func (id *identity) execArgs(t target) ([]string, error) {
	cluster, err := id.clusterArgs()
	if err != nil {
		return nil, err
	}
	args := append([]string{"exec-credential"}, cluster...)
	values := id.flagValues()
	names := make([]string, 0, len(values))
	for name := range values {
		if !slices.Contains([]string{"kubeconfig", "context", "in-cluster"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		list, ok := values[name].([]string)
		if !ok {
			list = []string{fmt.Sprint(values[name])}
		}
		for _, value := range list {
			if slices.Contains([]string{"token-file", "cache-dir"}, name) {
				if value, err = filepath.Abs(value); err != nil {
					return nil, err
				}
			}
			args = append(args, "--"+name+"="+value)
		}
	}
	if t.resource != "" {
		args = append(args, "--cluster="+t.resource)
	}
	if t.address != "" {
		args = append(args, "--cluster-address="+t.address)
	}
	if t.name != "" {
		args = append(args, "--cluster-name="+t.name)
	}
	return args, nil
}

// ownCommand is how kubectl finds this program.
func ownCommand() (string, error) {
	if _, err := exec.LookPath("wid"); err == nil {
		return "wid", nil
	}
	return os.Executable()
}

// save never writes over the kubeconfig that the ServiceAccount comes from.
func (id *identity) save(file string, content []byte) error {
	own, err := id.kubeconfigPath()
	if target, absErr := filepath.Abs(file); err == nil && absErr == nil && target == own && id.serviceAccount != "" {
		return usagef("--file is the kubeconfig of the ServiceAccount's own cluster; choose another file")
	}
	if old, err := readBounded(file); err == nil && !bytes.Contains(old, []byte("exec-credential")) || errors.Is(err, errTooLarge) {
		return usagef("--file %s exists and was not written by wid; choose another file, or remove it", file)
	}
	if err := replaceFile(file, content); err != nil {
		return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "choose another file with --file",
			Message: "the kubeconfig cannot be written: " + oneLine(err.Error())}
	}
	id.warn("wrote %s; try it with kubectl --kubeconfig %s get namespaces", file, file)
	return nil
}
