package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"

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
		Args: cobra.NoArgs,
	}
	id := a.newIdentity(cmd)
	t.bind(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "file to write, mode 0600; standard output otherwise")
	cmd.Flags().StringVar(&name, "name", "wid", "name of cluster, user and context in the kubeconfig")
	cmd.Flags().StringVar(&command, "command", "", "program that kubectl runs; wid if that is on the PATH, else this program")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) {
			content, err := id.writeKubeconfig(ctx, cmd, t, name, command)
			if err != nil || file == "" {
				return content, err
			}
			return nil, id.save(file, content)
		})
	}
	return cmd
}

func (id *identity) writeKubeconfig(ctx context.Context, cmd *cobra.Command, t target, name, command string) ([]byte, error) {
	if id.tokenStdin {
		return nil, usagef("a token from standard input is gone when kubectl runs; use --token-file or --service-account")
	}
	if u, err := url.Parse(id.proxyURL); err == nil && u.User != nil {
		return nil, usagef("the kubeconfig would hold the password of --proxy-url; set HTTPS_PROXY where kubectl runs instead")
	}
	ca, err := t.ca()
	if err != nil {
		return nil, err
	}
	s, provider, err := id.resolveNamed(ctx, cmd)
	if err != nil {
		return nil, err
	}
	args, env, err := id.execArgs(provider.GetName(), t)
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
	cluster := &clientcmdapi.Cluster{Server: access.Host(), CertificateAuthorityData: access.CAData()}
	return clientcmd.Write(*ownKubeconfig(name, cluster, command, args, env))
}

// installHint is what kubectl shows where wid is missing. It also marks what wid has written.
const installHint = "wid is the command line of github.com/workloadid/workloadid"

func ownKubeconfig(name string, cluster *clientcmdapi.Cluster, command string, args []string, env []clientcmdapi.ExecEnvVar,
) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = cluster
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: command, Args: args, Env: env,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode, ProvideClusterInfo: true, InstallHint: installHint,
	}}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config
}

// ownCommand is how kubectl finds this program.
func ownCommand() (string, error) {
	if _, err := exec.LookPath("wid"); err == nil {
		return "wid", nil
	}
	return os.Executable()
}

// save never writes over a file that it has not written itself, such as one that kubeconfigs were merged into.
func (id *identity) save(file string, content []byte) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return unwritable(err)
	case !info.Mode().IsRegular():
		return usagef("--file %s is not a file; choose another one, or leave --file out for standard output", file)
	default:
		old, err := readBounded(file)
		if err != nil && !errors.Is(err, errTooLarge) {
			return unwritable(err)
		}
		if !isOwnKubeconfig(old) {
			return usagef("--file %s exists and was not written by wid kubeconfig; choose another file, or remove it", file)
		}
	}
	if err := replaceFile(file, content, 0o600); err != nil {
		return unwritable(err)
	}
	id.warn("wrote %s; try it with kubectl --kubeconfig %s get namespaces", file, file)
	return nil
}

func unwritable(err error) error {
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "choose another file with --file",
		Message: "the kubeconfig cannot be written: " + oneLine(err.Error())}
}

// isOwnKubeconfig reports whether a file holds what wid kubeconfig writes, and nothing else.
func isOwnKubeconfig(content []byte) bool {
	config, err := clientcmd.Load(content)
	if err != nil || len(config.Clusters) != 1 || len(config.Contexts) != 1 || len(config.AuthInfos) != 1 {
		return false
	}
	for _, user := range config.AuthInfos {
		if user.Exec == nil || user.Exec.InstallHint != installHint {
			return false
		}
	}
	return true
}
