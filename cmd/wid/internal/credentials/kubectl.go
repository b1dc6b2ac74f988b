package credentials

import (
	"context"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// NewKubeconfig returns wid kubeconfig.
func (a *App) NewKubeconfig() *cobra.Command {
	var t target
	var file, name, command string
	cmd := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Write a kubeconfig for a cluster, whose credentials wid gets whenever kubectl needs one",
		Long:    "Write a kubeconfig for a cluster. kubectl then runs wid for each credential, so the file holds no secret.",
		Example: "  wid kubeconfig --service-account tenant-a/app --cluster arn:aws:eks:eu-central-1:123456789012:cluster/prod -f prod.yaml",
		Args:    cobra.NoArgs,
	}
	id := a.NewIdentity(cmd)
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

func (id *Identity) writeKubeconfig(ctx context.Context, cmd *cobra.Command, t target, name, command string) ([]byte, error) {
	if id.TokenStdin {
		return nil, cli.Usagef("a token from standard input is gone when kubectl runs; use --token-file or --service-account")
	}
	if u, err := url.Parse(id.proxyURL); err == nil && u.User != nil {
		return nil, cli.Usagef("the kubeconfig would hold the password of --proxy-url; set HTTPS_PROXY where kubectl runs instead")
	}
	if _, _, err := id.execArgs(id.Provider, t); err != nil { // before any request
		return nil, err
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

// installHint is shown by kubectl where wid is missing. It also marks files of wid kubeconfig.
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

// ownCommand returns the command by which kubectl finds this program.
func ownCommand() (string, error) {
	if _, err := exec.LookPath("wid"); err == nil {
		return "wid", nil
	}
	return os.Executable()
}

// save never writes over a file that it has not written itself, such as one that kubeconfigs were merged into.
func (id *Identity) save(file string, content []byte) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return unwritable(err)
	case !info.Mode().IsRegular():
		return cli.Usagef("--file %s is not a file; choose another one, or leave --file out for standard output", file)
	default:
		old, err := cli.ReadBounded(file)
		if err != nil && !errors.Is(err, cli.ErrTooLarge) {
			return unwritable(err)
		}
		if !isOwnKubeconfig(old) {
			return cli.Usagef("--file %s exists and was not written by wid kubeconfig; choose another file, or remove it", file)
		}
	}
	if err := cli.ReplaceFile(file, content, 0o600); err != nil {
		return unwritable(err)
	}
	id.warn("wrote %s; try it with kubectl --kubeconfig %s get namespaces", file, file)
	return nil
}

func unwritable(err error) error {
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "choose another file with --file",
		Message: "the kubeconfig cannot be written: " + cli.OneLine(err.Error())}
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

// execArgs returns the arguments and variables with which kubectl runs wid. They mean the same in any directory and environment.
func (id *Identity) execArgs(provider string, t target) ([]string, []clientcmdapi.ExecEnvVar, error) {
	args, err := id.clusterArgs()
	if err != nil {
		return nil, nil, err
	}
	args = append([]string{"exec-credential", "--no-environment"}, args...)
	for _, s := range id.Settings() {
		if !id.changed(s.Name) || s.OfOther(provider) || slices.Contains([]string{"kubeconfig", "context", "in-cluster"}, s.Name) {
			continue
		}
		values, err := s.values(id.Flags.Lookup(s.Name))
		if err != nil {
			return nil, nil, err
		}
		for _, value := range values {
			args = append(args, "--"+s.Name+"="+value)
		}
	}
	more, env, err := id.fromVariables(provider, t)
	if err != nil {
		return nil, nil, err
	}
	args = append(args, more...)
	for _, flag := range [][2]string{{"cluster", t.resource}, {"cluster-address", t.address}, {"cluster-name", t.name}} {
		if flag[1] != "" {
			args = append(args, "--"+flag[0]+"="+flag[1])
		}
	}
	return args, env, nil
}

// values are the arguments of the flag, one for each time that it is passed.
func (s *Setting) values(f *pflag.Flag) ([]string, error) {
	text := f.Value.String()
	switch p := s.target.(type) {
	case *repeated:
		return *p, nil
	case *[]string: // CSV in brackets
		if strings.ContainsRune(text, '\r') { // readers of CSV drop it
			return nil, cli.Usagef("--%s cannot be passed on to kubectl: it holds a carriage return", s.Name)
		}
		return []string{strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")}, nil
	}
	if s.marks&isPath != 0 && text != "" {
		path, err := lasting("--"+s.Name, text)
		return []string{path}, err
	}
	return []string{text}, nil
}

// lasting is the path for a program that runs later, somewhere else.
func lasting(what, name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path) //nolint:gosec // the caller names it
	gone := err == nil && !info.Mode().IsRegular() && !info.IsDir()
	if gone || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/") {
		return "", cli.Usagef("%s %.300q is a pipe or the like, which is another one or none when kubectl runs; name a file", what, name)
	}
	return path, nil
}

// fromVariables passes the provider's variables on to kubectl's calls. Unset variables become empty there.
func (id *Identity) fromVariables(provider string, t target) (args []string, env []clientcmdapi.ExecEnvVar, err error) {
	for _, v := range shaping {
		value := os.Getenv(v.name)
		switch {
		case v.provider != provider || v.flag != "" && id.changed(v.flag):
			continue
		case v.flag == "region" && t.resource != "":
			continue // the region is that of the cluster
		case value == "" && id.ServiceAccount == "" && !id.HasToken():
			continue // wid's own identity depends on the environment where it runs
		case v.flag != "" && value != "":
			args = append(args, "--"+v.flag+"="+value)
			continue
		case v.path && value != "":
			if value, err = lasting(v.name, value); err != nil {
				return nil, nil, err
			}
		}
		env = append(env, clientcmdapi.ExecEnvVar{Name: v.name, Value: value})
	}
	return args, env, nil
}

// target is the cluster that access is wanted to.
type target struct {
	resource, address, caFile, name string
}

func (t *target) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.resource, "cluster", "", "full name of the cluster in the provider's API, such as its ARN")
	f.StringVar(&t.address, "cluster-address", "", "https address of the cluster's API server")
	f.StringVar(&t.caFile, "cluster-ca-file", "", "PEM file with the cluster's CA")
	f.StringVar(&t.name, "cluster-name", "", "name of the EKS cluster, if it is given by address and CA")
}

func (t *target) options(ca []byte) []auth.Option {
	var opts []auth.Option
	if t.resource != "" {
		opts = append(opts, auth.WithClusterResource(t.resource))
	}
	if t.address != "" {
		opts = append(opts, auth.WithClusterAddress(t.address))
	}
	if len(ca) > 0 {
		opts = append(opts, auth.WithCAData(string(ca)))
	}
	if t.name != "" {
		opts = append(opts, aws.WithClusterName(t.name))
	}
	return opts
}

func (t *target) ca() ([]byte, error) {
	if t.caFile == "" {
		return nil, nil
	}
	content, err := cli.ReadBounded(t.caFile)
	if err != nil {
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Message: "--cluster-ca-file cannot be read: " + cli.OneLine(err.Error()),
			Remedy: "name a PEM file with the cluster's CA"}
	}
	return content, nil
}

// NewExecCredential returns wid exec-credential.
func (a *App) NewExecCredential() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:     "exec-credential",
		Short:   "Act as an exec plugin of kubectl and client-go; wid kubeconfig writes a kubeconfig that uses it",
		Example: "  wid exec-credential --service-account tenant-a/app --cluster arn:aws:eks:eu-central-1:123456789012:cluster/prod",
		Args:    cobra.NoArgs,
	}
	id := a.NewIdentity(cmd)
	t.bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.exec(ctx, cmd, t) })
	}
	return cmd
}

func (id *Identity) exec(ctx context.Context, cmd *cobra.Command, t target) ([]byte, error) {
	info, err := plugin.ParseExecInfo(os.Getenv(plugin.ExecInfoVariable))
	if err != nil {
		return nil, err
	}
	id.cluster = t
	ca, err := t.ca()
	if err != nil {
		return nil, err
	}
	if c := info.Cluster; c != nil {
		if t.address, err = sameCluster(t.address, c.Server); err != nil {
			return nil, err
		}
		if t.resource == "" && len(ca) == 0 {
			ca = c.CAData
		}
	}
	s, provider, err := id.resolveNamed(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if info.Cluster != nil && s.ServiceAccount == nil {
		// The kubeconfig names a cluster too, so the Policy has to judge that.
		s.opts = append(s.opts, auth.WithOwner(cache.InvolvedObject{Kind: "kubeconfig", Name: info.Cluster.Server}))
	}
	c, err := id.access(ctx, s, provider, t, ca)
	if err != nil {
		return nil, err
	}
	return info.Encode(c.Token, c.Expires)
}

// sameCluster makes sure that a credential goes to the cluster that the flags name, whatever became of the kubeconfig.
func sameCluster(flag, server string) (string, error) {
	asked, err := auth.ParseClusterAddress(server)
	if err != nil || flag == "" {
		return server, err
	}
	own, err := auth.ParseClusterAddress(flag)
	if err == nil && own != asked {
		err = &auth.Error{Reason: auth.ErrDenied, Message: "the kubeconfig's server is not the one of --cluster-address",
			Remedy: "write the kubeconfig again with wid kubeconfig"}
	}
	return flag, err
}

// access is auth.GetRESTConfig through the cache on disk.
func (id *Identity) access(ctx context.Context, s *Source, provider auth.Provider, t target, ca []byte,
) (*credential, error) {
	r := request{Kind: "cluster", Provider: provider.GetName(), Target: []string{t.resource, t.address, hex.EncodeToString(ca), t.name}}
	return id.get(ctx, s, r, func(ctx context.Context, opts []auth.Option) (*credential, error) {
		config, err := auth.GetRESTConfig(ctx, provider, append(opts[:len(opts):len(opts)], t.options(ca)...)...)
		if err != nil {
			return nil, err
		}
		return &credential{Provider: provider.GetName(), Token: config.BearerToken(), Expires: config.ExpiresAt()}, nil
	})
}
