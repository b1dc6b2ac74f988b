package doctor

import (
	"context"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// Config says what to examine and by what means. What is left out makes the checks that need it Skip or Unknown.
type Config struct {
	// Provider is the one whose credentials are wanted. Required.
	Provider auth.Provider
	// Options are those of the calls that fail: region, scopes, HTTP client and so on, but neither the ServiceAccount nor
	// its token.
	Options []auth.Option

	// ServiceAccount is the identity to act as. Without one and without a token it is that of the Pod, and if there is none
	// either, the program's own identity is examined.
	ServiceAccount client.ObjectKey
	// Annotations are the ServiceAccount's, for callers without a cluster. With a Client they are read.
	Annotations map[string]string
	// Client is that of the ServiceAccount's cluster. It should be able to get the ServiceAccount and the pod, and to list
	// MutatingWebhookConfigurations; the rights that it lacks make checks Unknown. Objects are read without their types in
	// Go, which the client of a manager asks the API server for: no watch is begun, and no right to list or watch is needed.
	Client client.Client
	// Reader reads in place of Client, which is needed all the same. Controllers pass Manager.GetAPIReader(); they have to if
	// their manager was told to cache objects without types too (client.CacheOptions.Unstructured). Nil: Client.
	Reader client.Reader
	// RESTConfig is the access to the same cluster, for its discovery document.
	RESTConfig *rest.Config

	// Token is a token of the ServiceAccount that the caller holds. Its claims say which issuer is asked for its documents, so
	// do not examine tokens of strangers where that matters. It is sent to the provider, and to Client to be reviewed.
	Token string
	// TokenFile is a file with such a token. With Token, it is where that came from.
	TokenFile string
	// Pod is the pod that gets no credentials. Optional.
	Pod client.ObjectKey
	// Container is the one of the pod's containers that gets no credentials. Empty: all are judged, and which of them need the
	// identity is not known.
	Container string
	// InPod says that this program runs in that pod: its environment is examined.
	InPod bool
	// Getenv reads the environment. Nil: os.Getenv.
	Getenv func(string) string

	// Issuer is the issuer that the cloud has been told to trust, if the caller knows it.
	Issuer string
	// IssuerClient reads the issuer's documents as a stranger would. Nil: a client without credentials.
	IssuerClient *http.Client
	// JWKS are the keys that were uploaded to the cloud, which then does not ask the issuer.
	JWKS []byte
	// Trust reads what the cloud was told to trust. Nil: the checks 19 and 20 are Unknown, or Skip if the exchange works.
	Trust TrustReader
	// Access reads whom an EKS cluster lets in, for check 24. Nil: it goes by what the cluster itself answers.
	Access AccessReader
	// Identify asks whose a credential is, "" if that cannot be told. Nil: what the token itself tells, which is enough for
	// AWS and for tokens of Kubernetes; for others check 22 is Skip.
	Identify func(ctx context.Context, token auth.Token) (string, error)

	// Repository is an artifact repository to pull from, such as 123456789012.dkr.ecr.eu-central-1.amazonaws.com/app.
	Repository string
	// RegistryClient asks the registry. Nil: that of the Options, or one of its own.
	RegistryClient *http.Client
	// Cluster is the full name of a cluster in the provider's API, ClusterAddress its address and ClusterCA its certificate
	// authority in PEM; see auth.GetRESTConfig.
	Cluster, ClusterAddress, ClusterCA string
	// Helper is the address of an endpoint that hands out credentials inside the pod (AWS_CONTAINER_CREDENTIALS_FULL_URI),
	// HelperTokenFile the file with its authorization token.
	Helper, HelperTokenFile string

	// ShowPolicy has remedies also print the commands that have a cloud trust more. They follow the correction of what was
	// written. Conditions never show them.
	ShowPolicy bool
	// Skip are the stable names of checks that are not wanted.
	Skip []string
	// Timeout bounds everything together. 0: a minute, which is also the most.
	Timeout time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

const (
	maxTimeout = time.Minute
	// requestTimeout bounds each request. The calls of providers are bounded by callTimeout, since they try again.
	requestTimeout = 5 * time.Second
	callTimeout    = 15 * time.Second
)

func (c *Config) complete() {
	if c.Timeout <= 0 || c.Timeout > maxTimeout {
		c.Timeout = maxTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
}

// options are those of a call of the library for the identity under examination.
func (e *examination) options() []auth.Option {
	opts := append([]auth.Option(nil), e.Options...)
	if e.token.raw != "" && !e.byFile {
		sa := e.serviceAccount()
		if !e.minted.tried { // no cloud knows UIDs, and a pod's programs do not compare them: check 18 does
			sa = sa.DeepCopy()
			sa.UID = ""
		}
		return append(opts, auth.WithSubjectToken(auth.NewStaticTokenSource(e.token.raw), *sa))
	}
	return opts
}

// resolved is what the options add up to, for the methods of providers that want that.
func (e *examination) resolved() *auth.Options {
	var o auth.Options
	for _, opt := range e.options() {
		if opt != nil {
			opt(&o)
		}
	}
	return &o
}

// serviceAccount is what is known of the ServiceAccount: as it is in the cluster or, without one, as the caller says.
func (e *examination) serviceAccount() *corev1.ServiceAccount {
	if e.account.Name != "" {
		return &e.account
	}
	sa := &corev1.ServiceAccount{}
	sa.Name, sa.Namespace, sa.Annotations = e.ServiceAccount.Name, e.ServiceAccount.Namespace, e.Annotations
	if sa.Name == "" && e.token.claims != nil {
		sa.Namespace, sa.Name = e.token.claims.Namespace, e.token.claims.ServiceAccount
	}
	return sa
}

// inCluster is the ServiceAccount as it is in the cluster, where a pod's environment says otherwise.
func (e *examination) inCluster() *corev1.ServiceAccount {
	if e.declared != nil {
		return e.declared
	}
	return e.serviceAccount()
}

// own says that the program's own identity is examined.
func (e *examination) own() bool {
	return e.ServiceAccount.Name == "" && e.Token == "" && e.TokenFile == "" && !e.nameless()
}
