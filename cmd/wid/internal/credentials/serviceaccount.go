package credentials

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/clientgo"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/jwt"
)

// loginOf returns the cluster and the user that read a ServiceAccount: another user may have fewer rights. It holds secrets.
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
	return fmt.Sprintf("%q", []any{c.Host, c.APIPath, tls.ServerName, strconv.FormatBool(tls.Insecure), tls.CAData, tls.CertData, tls.KeyData,
		c.Username, c.Password, c.BearerToken, c.BearerTokenFile, c.Impersonate, plugins}), err
}

// userOf returns the user of a token from a file, since the token changes every hour. A forged name gains nothing: the API server
// checks the token on every call.
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
		config, err := id.podConfig()
		return config, noCluster(err)
	}
	if os.Getenv(plugin.ExecInfoVariable) != "" && id.Kubeconfig == "" {
		// The kubeconfig of the environment may be the very one that has called this program.
		return nil, cli.Usagef("say in the args of the kubeconfig's exec section where the ServiceAccount lives: " +
			"--kubeconfig or --in-cluster")
	}
	if err := countDepth(); err != nil {
		return nil, err
	}
	config, err := id.KubeFile().Config()
	if err != nil {
		return nil, noCluster(err)
	}
	id.Sent.Watch(config)
	if !id.Examines { // the doctor names its checks
		cli.Announce(config, id.Stderr)
	}
	// client-go reads os.Stderr during the set-up of an exec plugin only, and keeps the plugin for all clients of the configuration.
	relay, err := cli.NewRelay(config, id.Stderr)
	if relay != nil {
		id.Relay.Store(relay)
	}
	return config, noCluster(err)
}

// podConfig finds the cluster that this program runs in.
func (id *Identity) podConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if err == nil {
		cli.BoundAnswers(config)
		id.Sent.Watch(config)
	}
	return config, err
}

const (
	// DepthVariable counts how often wid has run itself through kubeconfigs.
	DepthVariable = "WID_EXEC_DEPTH"
	maxDepth      = 3
)

// countDepth ends a chain of kubeconfigs that each have this program run for the next one, which may be the same.
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

// noCluster explains why there is no cluster to ask.
func noCluster(err error) error {
	if err == nil {
		return nil
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
		return nil, cli.Usagef("KUBECONFIG names %d files: pass --kubeconfig with the one of the ServiceAccount's cluster", len(files))
	}
	return []string{"--kubeconfig=" + path, "--context=" + cmp.Or(id.kubeContext, config.CurrentContext)}, nil
}
