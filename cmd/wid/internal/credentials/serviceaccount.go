package credentials

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/jwt"
)

// clusterKey identifies the cluster and the user that read a ServiceAccount: another user may have fewer rights.
type clusterKey struct {
	Host, Path, ServerName string
	Insecure               bool
	User                   string
	TokenFile              string
	Impersonate            rest.ImpersonationConfig
	// Secrets are hashes of what the kubeconfig holds as credentials and as certificates, or of the files that it names.
	Secrets map[string]string
	Exec    *clientcmdapi.ExecConfig
	Plugin  *clientcmdapi.AuthProviderConfig
}

func newClusterKey(c *rest.Config) *clusterKey {
	k := &clusterKey{Host: c.Host, Path: c.APIPath, ServerName: c.ServerName, Insecure: c.Insecure,
		User: c.Username, Impersonate: c.Impersonate, TokenFile: c.BearerTokenFile,
		Exec: c.ExecProvider, Plugin: c.AuthProvider, Secrets: map[string]string{}}
	secrets := map[string]string{"password": c.Password, "ca": string(c.CAData), "cert": string(c.CertData), "key": string(c.KeyData)}
	secrets["token"] = c.BearerToken
	if c.BearerTokenFile != "" {
		secrets["token"] = bearer(c.BearerToken)
	}
	for name, secret := range secrets {
		k.Secrets[name] = hex.EncodeToString(sum(secret))
	}
	for name, file := range map[string]string{"ca-file": c.CAFile, "cert-file": c.CertFile, "key-file": c.KeyFile} {
		k.Secrets[name] = fileSum(file)
	}
	return k
}

// bearer returns the user of a token from a file, since the token changes every hour. A forged name gains nothing: the API server
// checks the token on every call.
func bearer(token string) string {
	claims, err := jwt.Parse(strings.TrimSpace(token))
	if err != nil || claims.Issuer == "" || claims.Subject == "" {
		return token
	}
	return fmt.Sprintf("%q %q", claims.Issuer, claims.Subject)
}

// unreached marks the error of an API server of the ServiceAccount that gave no answer.
type unreached struct{ error }

func (e *unreached) Unwrap() error { return e.error }

// fromCluster reads the ServiceAccount. After a failure the library gets the same answer and reports it.
func (id *Identity) fromCluster(ctx context.Context) (*Source, error) {
	key, err := ParseServiceAccount(id.ServiceAccount)
	if err != nil {
		return nil, err
	}
	config, err := id.ClusterConfig()
	if err != nil {
		return nil, err
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return nil, noCluster(err)
	}
	read := &pinned{Client: kube, key: key}
	read.err = kube.Get(ctx, key, &read.sa)
	if answer := apierrors.APIStatus(nil); read.err != nil && !errors.As(read.err, &answer) {
		read.err = &unreached{read.err}
	}
	s := &Source{opts: []auth.Option{auth.WithServiceAccount(key, read), owner(key)}, ServiceAccount: &read.sa, readErr: read.err}
	if read.err == nil {
		s.key = &sourceKey{Namespace: key.Namespace, Name: key.Name, UID: string(read.sa.UID),
			Annotations: read.sa.Annotations, Cluster: newClusterKey(config)}
	}
	return s, nil
}

// pinned is a client that has read one ServiceAccount: what is minted is for what the key of the cache says.
type pinned struct {
	client.Client
	key client.ObjectKey
	sa  corev1.ServiceAccount
	err error
}

func (p *pinned) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	sa, ok := obj.(*corev1.ServiceAccount)
	switch {
	case !ok:
		return p.Client.Get(ctx, key, obj, opts...)
	case key != p.key:
		return fmt.Errorf("the ServiceAccount %.300q was not read, but %q", key.String(), p.key.String())
	case p.err == nil:
		p.sa.DeepCopyInto(sa)
	}
	return p.err
}

// ClusterConfig finds the cluster of the ServiceAccount.
func (id *Identity) ClusterConfig() (*rest.Config, error) {
	if id.InCluster {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, noCluster(err)
		}
		cli.BoundAnswers(config)
		id.Sent.Watch(config)
		return config, nil
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
	if err := id.relayPlugin(config); err != nil {
		return nil, noCluster(err)
	}
	return config, nil
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
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err,
		Message: "the ServiceAccount's cluster cannot be found: " + cli.KubeconfigMistake(err),
		Remedy:  "pass --kubeconfig and --context, set KUBECONFIG, or run in a pod"}
}

// newKubeClient returns a client that knows the few kinds that are needed, so that it asks the API server for nothing else.
func newKubeClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	config = rest.CopyConfig(config)
	config.UserAgent = "wid"
	if token := strings.TrimSpace(config.BearerToken); token != "" {
		config.BearerToken, config.BearerTokenFile = token, "" // the one that clusterKey stands for
	}
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// podClient is a client of the cluster that this program runs in.
func (id *Identity) podClient() (client.Client, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	cli.BoundAnswers(config)
	id.Sent.Watch(config)
	return newKubeClient(config)
}

// clusterArgs returns flags that mean the same cluster wherever they are used.
func (id *Identity) clusterArgs() ([]string, error) {
	if id.ServiceAccount == "" || id.HasToken() {
		return nil, nil
	}
	config, err := id.KubeFile().Load()
	if err != nil {
		return nil, noCluster(err)
	}
	raw, err := config.RawConfig()
	if err != nil {
		return nil, noCluster(err)
	}
	for _, file := range id.KubeFile().Rules().GetLoadingPrecedence() {
		if _, err := lasting("the kubeconfig", file); err != nil && file != os.DevNull && !id.InCluster {
			return nil, err
		}
	}
	if id.InCluster || len(raw.Contexts) == 0 {
		return []string{"--in-cluster"}, nil
	}
	path, err := id.kubeconfigPath()
	if err != nil {
		return nil, err
	}
	current := raw.CurrentContext
	if id.kubeContext != "" {
		current = id.kubeContext
	}
	return []string{"--kubeconfig=" + path, "--context=" + current}, nil
}

// kubeconfigPath is the one file that the kubeconfig comes from.
func (id *Identity) kubeconfigPath() (string, error) {
	path := id.Kubeconfig
	if path == "" {
		files := filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
		switch len(files) {
		case 0:
			path = clientcmd.RecommendedHomeFile
		case 1:
			path = files[0]
		default:
			return "", cli.Usagef("KUBECONFIG names %d files: pass --kubeconfig with the one of the ServiceAccount's cluster", len(files))
		}
	}
	return lasting("--kubeconfig", path)
}
