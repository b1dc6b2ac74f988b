package interop

import (
	"context"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/clusterprofile"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
)

// providers reads the file of a controller as docs/clusterprofile.md has it,
// with the paths and names of this environment.
func (w *environment) providers(t *testing.T, edit func(provider *access.Provider)) *access.Config {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "clusterprofile.md"))
	w.must(t, err)
	_, block, found := strings.Cut(string(page), "```json\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("the page has no file of providers")
	}
	config, err := access.NewFromFile(w.write(t, "providers.json", []byte(block)))
	w.must(t, err)
	for i := range config.Providers {
		exec := config.Providers[i].ExecConfig
		exec.Command = w.wid
		exec.Args[slices.Index(exec.Args, "--in-cluster")] = "--kubeconfig=" + w.hub.Kubeconfig(t)
		exec.Args[slices.Index(exec.Args, "--service-account=fleet/deployer")] = "--service-account=" + namespace + "/app"
		if edit != nil {
			edit(&config.Providers[i])
		}
	}
	return config
}

// publish writes a ClusterProfile and returns what the API server has kept of
// it.
func (w *environment) publish(t *testing.T, status v1alpha1.ClusterProfileStatus) *v1alpha1.ClusterProfile {
	t.Helper()
	profile := &v1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "spoke-"},
		Spec: v1alpha1.ClusterProfileSpec{DisplayName: "spoke", ClusterManager: v1alpha1.ClusterManager{Name: "test"}}}
	w.must(t, w.inventory.Create(t.Context(), profile))
	profile.Status = status
	w.must(t, w.inventory.Status().Update(t.Context(), profile))
	read := &v1alpha1.ClusterProfile{}
	w.must(t, w.inventory.Get(t.Context(), client.ObjectKeyFromObject(profile), read))
	return read
}

func accessBy(name string, cluster clientcmdv1.Cluster) v1alpha1.ClusterProfileStatus {
	return v1alpha1.ClusterProfileStatus{AccessProviders: []v1alpha1.AccessProvider{{Name: name, Cluster: cluster}}}
}

func listNamespaces(ctx context.Context, config *rest.Config) error {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	return c.List(ctx, &corev1.NamespaceList{})
}

// eventually waits for the API server to get the issuer's keys, which it does
// in the background.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestClusterProfiles(t *testing.T) {
	w := newEnvironment(t)
	t.Run("inventory", w.tryInventory)
	t.Run("hostile author", w.tryHostileProfiles)
	t.Run("variables of the author", w.tryVariables)
	t.Run("arguments of another cluster", w.tryArgumentsOfAnotherCluster)
}

// The unmodified library runs wid, and a real API server accepts the
// credential. clusterprofile.GetConfig reaches the same clusters.
func (w *environment) tryInventory(t *testing.T) {
	kube, err := client.New(w.hub.Config(), client.Options{})
	w.must(t, err)
	for name, status := range map[string]v1alpha1.ClusterProfileStatus{
		"generic":             accessBy("generic", w.cluster()),
		"generic, with name":  accessBy("generic", w.cluster(clusterName("spoke-1"))),
		"credentialProviders": {CredentialProviders: []v1alpha1.CredentialProvider{{Name: "generic", Cluster: w.cluster()}}},
		"EKS by its ARN":      accessBy("eks", w.cluster(clusterName(prodARN))),
		"EKS by its name":     accessBy("eks", w.cluster(clusterName("prod"))),
	} {
		t.Run(name, func(t *testing.T) {
			profile := w.publish(t, status)
			eventually(t, func() error {
				config, err := w.providers(t, nil).BuildConfigFromCP(profile)
				w.must(t, err)
				return listNamespaces(t.Context(), config)
			})
			found := append(profile.Status.AccessProviders, profile.Status.CredentialProviders...)[0]
			var provider auth.Provider = &token.Provider{}
			if found.Name == "eks" {
				provider = &aws.Provider{}
			}
			config, err := clusterprofile.GetConfig(t.Context(), provider, &found.Cluster,
				auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: "app"}, kube),
				auth.WithSTSRegion("eu-central-1"),
				auth.WithHTTPClient(w.cloud.Client()),
				auth.WithOwner(cache.InvolvedObject{Kind: "ClusterProfile", Namespace: profile.Namespace, Name: profile.Name}))
			w.must(t, err)
			w.must(t, listNamespaces(t.Context(), config))
		})
	}
}

// A hostile author writes what the API server admits. No server of his gets a
// credential that another cluster accepts.
func (w *environment) tryHostileProfiles(t *testing.T) {
	evil := newEavesdropper(t)
	evilCA := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: evil.Certificate().Raw})
	edited := func(edit func(*clientcmdv1.Cluster), extensions ...clientcmdv1.NamedExtension) clientcmdv1.Cluster {
		c := w.cluster(extensions...)
		edit(&c)
		return c
	}
	elsewhere := func(c *clientcmdv1.Cluster) { c.Server, c.CertificateAuthorityData = evil.URL, evilCA }
	for name, status := range map[string]v1alpha1.ClusterProfileStatus{
		"EKS, foreign address":       accessBy("eks", edited(elsewhere, clusterName(prodARN))),
		"EKS, name, foreign address": accessBy("eks", edited(elsewhere, clusterName("prod"))),
		"EKS, no name":               accessBy("eks", edited(elsewhere)),
		"EKS, insecure": accessBy("eks", edited(func(c *clientcmdv1.Cluster) {
			c.Server, c.CertificateAuthorityData, c.InsecureSkipTLSVerify = evil.URL, nil, true
		}, clusterName(prodARN))),
		"EKS, foreign CA and proxy": accessBy("eks", edited(func(c *clientcmdv1.Cluster) {
			c.CertificateAuthorityData, c.ProxyURL = evilCA, evil.URL
		}, clusterName(prodARN))),
		"generic, foreign CA, proxy": accessBy("generic", edited(func(c *clientcmdv1.Cluster) {
			c.CertificateAuthorityData, c.ProxyURL = evilCA, evil.URL
		})),
		"another provider's extension": accessBy("eks",
			edited(elsewhere, extension("client.authentication.k8s.io/exec", `{"clusterName":{"cluster":"prod"}}`))),
	} {
		t.Run(name, func(t *testing.T) {
			config, err := w.providers(t, nil).BuildConfigFromCP(w.publish(t, status))
			w.must(t, err)
			if err := listNamespaces(t.Context(), config); err == nil || !strings.Contains(err.Error(), "exit code") {
				t.Errorf("wid gave a credential: %v", err)
			}
			if heard := evil.heard(); len(heard) != 0 {
				t.Errorf("the author's server got %d tokens", len(heard))
			}
		})
	}
	t.Run("generic, foreign address", func(t *testing.T) {
		config, err := w.providers(t, nil).BuildConfigFromCP(w.publish(t, accessBy("generic", edited(elsewhere))))
		w.must(t, err)
		_ = listNamespaces(t.Context(), config) // 404
		heard := evil.heard()
		if len(heard) == 0 {
			t.Fatal("the author's server got no token, so this tests nothing")
		}
		stolen := rest.AnonymousClientConfig(w.spoke.Config())
		stolen.BearerToken = heard[0]
		if err := listNamespaces(t.Context(), stolen); !apierrors.IsUnauthorized(err) {
			t.Errorf("another cluster accepts the token: %v", err)
		}
	})
}

// With Replace, the author sets variables of wid. The flag --no-environment has
// wid ignore its own.
func (w *environment) tryVariables(t *testing.T) {
	profile := w.publish(t,
		accessBy("generic", w.cluster(extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
			`{"WID_AUDIENCE":"fleet","WID_PROXY_URL":"http://127.0.0.1:1","WID_TOKEN_FILE":"/nonexistent"}`))))
	config, err := w.providers(t, func(p *access.Provider) {
		p.ProfileSourcedEnvVarsPolicy = access.ProfileSourcedEnvVarsPolicyReplace
	}).BuildConfigFromCP(profile)
	w.must(t, err)
	if len(config.ExecProvider.Env) != 3 {
		t.Fatalf("the library does not pass the variables: %q", config.ExecProvider.Env)
	}
	w.must(t, listNamespaces(t.Context(), config))
}

// With Append, a Config that serves two clusters hands the arguments of the
// first to the second. Wid refuses them.
func (w *environment) tryArgumentsOfAnotherCluster(t *testing.T) {
	fresh := func() *access.Config {
		return w.providers(t, func(provider *access.Provider) {
			provider.ProfileSourcedCLIArgsPolicy = access.ProfileSourcedCLIArgsPolicyAppend
			provider.ExecConfig.Args = slices.DeleteFunc(provider.ExecConfig.Args, func(arg string) bool {
				return strings.HasPrefix(arg, "--service-account=")
			})
		})
	}
	// not published: the CustomResourceDefinition admits objects only
	profile := func(account string) *v1alpha1.ClusterProfile {
		return &v1alpha1.ClusterProfile{Status: accessBy("generic", w.cluster(
			extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-args",
				`["--service-account=`+namespace+"/"+account+`"]`)))}
	}
	config, err := fresh().BuildConfigFromCP(profile("app"))
	w.must(t, err)
	w.must(t, listNamespaces(t.Context(), config))
	shared := fresh()
	_, err = shared.BuildConfigFromCP(profile("other"))
	w.must(t, err)
	config, err = shared.BuildConfigFromCP(profile("app"))
	w.must(t, err)
	if n := len(config.ExecProvider.Args); !strings.HasSuffix(config.ExecProvider.Args[n-2], "/other") {
		t.Fatalf("the library does not append to a shared list any more: %q", config.ExecProvider.Args)
	}
	if err := listNamespaces(t.Context(), config); err == nil || !strings.Contains(err.Error(), "exit code 2") {
		t.Errorf("wid took arguments of two clusters: %v", err)
	}
}
