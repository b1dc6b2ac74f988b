package credentials

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/clientgo"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/jwt"
)

// target is the cluster that access is wanted to.
type target struct {
	resource, address, caFile, name string
	// presented is the CA that the caller of the exec plugin trusts. Empty: the
	// system's roots.
	presented []byte
}

func (t *target) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.resource, "cluster", "", "full name of the cluster in the provider's API, such as its ARN")
	f.StringVar(&t.address, "cluster-address", "", "https address of the cluster's API server")
	f.StringVar(&t.caFile, "cluster-ca-file", "", "PEM file with the cluster's CA")
	f.StringVar(&t.name, "cluster-name", "", "name of the EKS cluster, if it is given by its address")
}

func (t *target) options(ca []byte) []auth.Option {
	opts := []auth.Option{auth.WithClusterResource(t.resource), auth.WithClusterAddress(t.address),
		auth.WithCAData(string(ca))}
	if t.name != "" {
		opts = append(opts, aws.WithClusterName(t.name))
	}
	return opts
}

// NewKubeconfig returns wid kubeconfig.
func (a *App) NewKubeconfig() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Write a kubeconfig for a cluster, whose credentials wid gets whenever kubectl needs one",
		Long:    "Write a kubeconfig for a cluster. kubectl then runs wid for each credential, so the file holds no secret.",
		Example: "  wid kubeconfig --service-account tenant-a/app --cluster arn:aws:eks:eu-central-1:123456789012:cluster/prod -f prod.yaml",
	}
	t.bind(cmd)
	file := cmd.Flags().StringP("file", "f", "", "file to write, mode 0600; standard output otherwise")
	name := cmd.Flags().String("name", "wid", "name of cluster, user and context in the kubeconfig")
	command := cmd.Flags().String("command", "",
		"program that kubectl runs; wid if that is on the PATH, else this program")
	return a.command(cmd, func(ctx context.Context, id *Identity, _ []string) ([]byte, error) {
		content, err := id.writeKubeconfig(ctx, t, *name, *command)
		if err != nil || *file == "" {
			return content, err
		}
		return nil, id.save(*file, content)
	})
}

func (id *Identity) writeKubeconfig(ctx context.Context, t target, name, command string) ([]byte, error) {
	if u, err := url.Parse(id.proxyURL); err == nil && u.User != nil {
		return nil,
			cli.Usagef("the kubeconfig would hold the password of --proxy-url; set HTTPS_PROXY where kubectl runs instead")
	}
	if _, _, err := id.execArgs(id.Provider, t); err != nil { // before any request, and before a pipe is read
		return nil, err
	}
	ca, err := ReadNamed("cluster-ca-file", t.caFile, "name a PEM file with the cluster's CA")
	if err != nil {
		return nil, err
	}
	s, provider, err := id.resolveNamed(ctx)
	if err != nil {
		return nil, err
	}
	args, env, err := id.execArgs(provider.GetName(), t)
	if err != nil {
		return nil, err
	}
	access, err := auth.GetRESTConfig(ctx, provider, slices.Concat(s.opts, t.options(ca))...)
	if err != nil {
		return nil, err
	}
	if command == "" {
		command = "wid"
		if _, missing := exec.LookPath(command); missing != nil {
			if command, err = os.Executable(); err != nil {
				return nil, err
			}
		}
	}
	cluster := &clientcmdapi.Cluster{Server: access.Host(), CertificateAuthorityData: access.CAData()}
	content, err := clientcmd.Write(*ownKubeconfig(name, cluster, command, args, env))
	return append([]byte(ownMark), content...), err
}

// ownMark begins files of wid kubeconfig. Programs that merge kubeconfigs drop
// comments.
const ownMark = "# wid kubeconfig -f replaces this file.\n"

func ownKubeconfig(name string, cluster *clientcmdapi.Cluster, command string, args []string,
	env []clientcmdapi.ExecEnvVar,
) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = cluster
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: command, Args: args, Env: env,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode, ProvideClusterInfo: true,
		InstallHint: "wid is the command line of github.com/workloadid/workloadid",
	}}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config
}

// save never writes over a file that it has not written itself, such as one
// that kubeconfigs were merged into.
func (id *Identity) save(file string, content []byte) error {
	if old, err := input.ReadFile(file); !errors.Is(err, os.ErrNotExist) &&
		(err != nil || !bytes.HasPrefix(old, []byte(ownMark))) {
		return cli.Usagef("--file %s exists and was not written by wid kubeconfig; choose another file, or remove it", file)
	}
	if err := cli.ReplaceFile(file, content, 0o600); err != nil {
		return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "choose another file with --file",
			Message: "the kubeconfig cannot be written: " + cli.OneLine(err.Error())}
	}
	id.warn("wrote %s; try it with kubectl --kubeconfig %s get namespaces", file, file)
	return nil
}

// execArgs returns the arguments and variables with which kubectl runs wid.
// They mean the same in any directory and environment.
func (id *Identity) execArgs(provider string, t target) (args []string, env []clientcmdapi.ExecEnvVar, err error) {
	cluster, err := id.clusterArgs()
	if err != nil {
		return nil, nil, err
	}
	args = append([]string{"exec-credential", "--no-environment"}, cluster...)
	for _, s := range id.Settings() {
		if !id.changed(s.Name) || s.OfOther(provider) ||
			slices.Contains([]string{"kubeconfig", "context", "in-cluster"}, s.Name) {
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
	for _, flag := range [][2]string{{"cluster", t.resource}, {"cluster-address", t.address}, {"cluster-name", t.name}} {
		if flag[1] != "" {
			args = append(args, "--"+flag[0]+"="+flag[1])
		}
	}
	for _, v := range shaping {
		value := os.Getenv(v.name)
		// wid's own identity depends on the environment where it runs
		if v.provider != provider || value == "" && id.isOwn() {
			continue
		}
		if v.isPath && value != "" {
			if value, err = lasting(v.name, value); err != nil {
				return nil, nil, err
			}
		}
		env = append(env, clientcmdapi.ExecEnvVar{Name: v.name, Value: value}) // empty: unset there too
	}
	return args, env, nil
}

// values are the arguments of the flag, one for each time that it is passed.
func (s *Setting) values(f *pflag.Flag) (_ []string, err error) {
	text := f.Value.String()
	switch p := s.target.(type) {
	case *repeated:
		return *p, nil
	case *[]string: // CSV in brackets
		text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	}
	if s.marks&isPath != 0 && text != "" {
		text, err = lasting("--"+s.Name, text)
	}
	return []string{text}, err
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
		return "", cli.Usagef("%s %.300q is a pipe or the like, which is another one or none later; name a file",
			what, name)
	}
	return path, nil
}

// loginOf returns the cluster and the user that read a ServiceAccount: another
// user may have fewer rights. It holds secrets.
func loginOf(config *rest.Config) (string, error) {
	c := rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(c); err != nil {
		return "", err
	}
	if c.BearerTokenFile != "" {
		c.BearerToken = userOf(c.BearerToken)
	}
	plugins, err := json.Marshal([]any{c.ExecProvider, c.AuthProvider})
	tls := c.TLSClientConfig
	return fmt.Sprintf("%q",
		[]any{c.Host, c.APIPath, tls.ServerName, strconv.FormatBool(tls.Insecure), tls.CAData, tls.CertData, tls.KeyData,
			c.Username, c.Password, c.BearerToken, c.BearerTokenFile, c.Impersonate, plugins}), err
}

// userOf returns the user of a token from a file, since the token changes every
// hour. A forged name gains nothing: the API server checks the token on every
// call.
func userOf(token string) string {
	claims, err := jwt.Parse(strings.TrimSpace(token))
	if err != nil || claims.Issuer == "" || claims.Subject == "" {
		return token
	}
	return fmt.Sprintf("%q %q", claims.Issuer, claims.Subject)
}

// ClusterConfig finds the cluster of the ServiceAccount.
func (id *Identity) ClusterConfig() (*rest.Config, error) {
	if id.InCluster {
		config, err := id.PodConfig()
		return config, noCluster(err)
	}
	if os.Getenv(plugin.ExecInfoVariable) != "" && id.Kubeconfig == "" {
		// The kubeconfig of the environment may be the very one that has called
		// this program.
		return nil, cli.Usagef("say in the args of the kubeconfig's exec section where the ServiceAccount lives: " +
			"--kubeconfig or --in-cluster")
	}
	if err := countDepth(); err != nil {
		return nil, err
	}
	config, _, err := id.KubeFile().Config()
	if err != nil {
		return nil, noCluster(err)
	}
	if !id.Examines { // the doctor names its checks
		cli.Announce(config, id.Stderr)
	}
	return config, noCluster(id.Clients.Watch(config, id.Stderr))
}

// PodConfig finds the cluster that this program runs in.
func (id *Identity) PodConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if err == nil {
		cli.BoundAnswers(config)
		err = id.Clients.Watch(config, id.Stderr)
	}
	return config, err
}

const (
	// DepthVariable counts how often wid has run itself through kubeconfigs.
	DepthVariable = "WID_EXEC_DEPTH"
	maxDepth      = 3
)

// countDepth ends a chain of kubeconfigs that each have this program run for
// the next one, which may be the same.
func countDepth() error {
	depth, _ := strconv.Atoi(os.Getenv(DepthVariable))
	if depth >= maxDepth {
		return cli.Usagef("the kubeconfig of the ServiceAccount's cluster has wid run, which needs that kubeconfig: " +
			"name another one with --kubeconfig")
	}
	return os.Setenv(DepthVariable, strconv.Itoa(depth+1)) // for the exec plugin of the kubeconfig
}

// KubeFile returns the kubeconfig of the ServiceAccount's cluster.
func (id *Identity) KubeFile() cli.KubeFile {
	return cli.KubeFile{Path: id.Kubeconfig, Context: id.kubeContext}
}

func noCluster(err error) error {
	if err == nil || errors.As(err, new(*auth.Error)) {
		return err
	}
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err,
		Message: "the ServiceAccount's cluster cannot be found: " + cli.KubeconfigMistake(err),
		Remedy:  "pass --kubeconfig and --context, set KUBECONFIG, or run in a pod"}
}

func newKubeClient(config *rest.Config) (auth.KubernetesClient, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "wid"
	if token := strings.TrimSpace(config.BearerToken); token != "" {
		config.BearerToken, config.BearerTokenFile = token, "" // the one in the key
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return clientgo.New(clientset), nil
}

// clusterArgs returns flags that mean the same cluster wherever they are used.
func (id *Identity) clusterArgs() ([]string, error) {
	inPod := []string{"--in-cluster"}
	switch {
	case id.ServiceAccount == "" || id.HasToken():
		return nil, nil
	case id.InCluster:
		return inPod, nil
	}
	rules, path := id.KubeFile().Rules(), ""
	files := rules.GetLoadingPrecedence()
	for _, file := range files {
		var err error
		if path, err = lasting("the kubeconfig", file); err != nil && file != os.DevNull {
			return nil, err
		}
	}
	config, err := rules.Load()
	switch {
	case err != nil:
		return nil, noCluster(err)
	case len(config.Contexts) == 0:
		return inPod, nil
	case len(files) > 1:
		return nil, cli.Usagef("KUBECONFIG names %d files: pass --kubeconfig with the one of the ServiceAccount's cluster",
			len(files))
	}
	return []string{"--kubeconfig=" + path, "--context=" + cmp.Or(id.kubeContext, config.CurrentContext)}, nil
}
