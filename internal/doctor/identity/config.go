package identity

import (
	"context"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

// Config names what to examine, and the means. A check without its means is skipped or Unknown.
type Config struct {
	// Provider issues the credentials. Required.
	Provider auth.Provider
	// Options are those of the calls that fail, without the ServiceAccount and its token.
	Options []auth.Option

	// ServiceAccount is the identity to act as. Empty means that of the token, of the Pod, or else the process's own.
	ServiceAccount client.ObjectKey
	// Annotations are those of the ServiceAccount, for callers without a Client.
	Annotations map[string]string
	// Client is that of the ServiceAccount's cluster. Objects are read as unstructured ones, for which a manager's client starts no
	// watch.
	Client client.Client
	// RESTConfig is the access to the same cluster, for its discovery document and its clock.
	RESTConfig *rest.Config
	// ClusterName names the cluster in the report: the context of a kubeconfig.
	ClusterName string

	// Token is a token of the ServiceAccount that the caller holds.
	Token string
	// TokenFile is a file with such a token. With Token, it is the file that Token came from.
	TokenFile string
	// Pod is the pod that gets no credentials. Optional.
	Pod client.ObjectKey
	// InPod means that this process runs in the pod. Its environment is examined.
	InPod bool
	// Getenv reads the environment. Nil means os.Getenv.
	Getenv func(string) string

	// Issuer is the issuer that the cloud trusts, if the caller knows it.
	Issuer string
	// IssuerClient reads the issuer's documents, without credentials. Nil means a client of its own.
	IssuerClient *http.Client
	// JWKS are the keys that were uploaded to the cloud, which then never asks the issuer.
	JWKS []byte
	// Trust examines what the cloud trusts. Nil skips its checks.
	Trust doctor.Trust
	// Access explains why an EKS cluster refuses the role. Nil means that the finding names the command that shows it.
	Access doctor.Access
	// Identify returns the identity of a credential, "" if the credential does not tell. Nil means that of AWS and of Kubernetes.
	Identify func(token auth.Token) string

	// Repository is an artifact repository to pull from, such as 123456789012.dkr.ecr.eu-central-1.amazonaws.com/app.
	Repository string
	// RegistryClient asks the registry. Nil means that of the Options.
	RegistryClient *http.Client
	// Cluster, ClusterAddress and ClusterCA (in PEM) name a cluster to reach, as for auth.GetRESTConfig.
	Cluster, ClusterAddress, ClusterCA string

	// ShowPolicy keeps the commands that make a cloud trust more.
	ShowPolicy bool
	// Skip are the IDs of checks that the caller does not want.
	Skip []string
	// Timeout bounds everything together. Zero means a minute.
	Timeout time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Progress is called before each check.
	Progress func(doctor.Check)
}

// Run examines and returns a report with a finding for each of Checks.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := newExamination(ctx, config)
	defer e.pool.CloseIdleConnections()
	return doctor.Run(ctx, doctor.Examination{
		Subject:    e.subject() + " → " + e.Provider.GetName(),
		Cluster:    e.clusterName(),
		Checks:     e.checks(),
		Decisive:   "exchange",
		Skip:       config.Skip,
		Timeout:    config.Timeout,
		ShowPolicy: config.ShowPolicy,
		Secrets:    func() []string { return e.secrets },
		Progress:   config.Progress,
	})
}

// Checks returns all checks in their order. Only Run can run them.
func Checks() []doctor.Check { return (&examination{}).checks() }

const (
	callTimeout = 15 * time.Second // of checks that make a provider retry
	exchange    = "exchange"
)

func (e *examination) checks() []doctor.Check {
	type check = doctor.Check
	// A failure of the exchange without a class, and AWS's general one, is explained by whatever failed before it.
	documents := []string{reason.SignatureNotVerified, reason.SigningKeyUnavailable, reason.IssuerNotPublic, reason.IssuerDidNotAnswer, reason.IssuerCertificateChanged}
	audience := []string{reason.SignatureNotVerified, reason.AudienceNotTrusted, reason.TokenWithoutAudience, reason.AudienceOfAnotherService, reason.NoFederatedCredential}
	issuer := slices.Concat([]string{reason.IssuerNotTrusted, reason.NoFederatedCredential}, documents)
	return []check{
		{ID: "source", Title: "the source of the credentials", Run: e.checkSource},
		{ID: "api-server", Title: "access to the cluster", Run: e.checkAPIServer},
		{ID: "service-account", Title: "the ServiceAccount and its annotations", Needs: []string{"api-server"}, Run: e.checkServiceAccount},
		{ID: "pod", Title: "what the pod was given", Needs: []string{"api-server"}, Run: e.checkPod},
		{ID: "token-request", Title: "the right to create tokens", Needs: []string{"service-account"}, Run: e.checkTokenRequest},
		{ID: "token", Title: "the token", Needs: []string{"token-request"}, Run: e.checkToken},
		{ID: "time", Title: "the clocks", Needs: []string{"api-server"}, OverriddenBy: exchange, Explains: []string{reason.SignatureNotVerified, reason.TokenExpired}, Run: e.checkTime},
		{ID: "audience", Title: "the requested audience", Needs: []string{"service-account"}, OverriddenBy: exchange, Explains: audience, Run: e.checkAudience},
		{ID: "issuer", Title: "the address of the issuer", Needs: []string{"token"}, OverriddenBy: exchange, Explains: issuer, Run: e.onToken(e.checkIssuer)},
		{ID: "discovery", Title: "the issuer's discovery document", Needs: []string{"issuer"}, OverriddenBy: exchange, Explains: documents, Run: e.onDocuments(e.checkDiscovery)},
		{ID: "keys", Title: "the published signing keys", Needs: []string{"discovery"}, OverriddenBy: exchange, Explains: documents, Run: e.onToken(e.checkKeys)},
		{ID: "trust-anchor", Title: "the issuer that the cloud trusts", Needs: []string{"token"}, OverriddenBy: exchange, Explains: slices.Concat(issuer, audience), Run: e.onToken(e.checkAnchor)},
		{ID: "trust-rule", Title: "the identity's trust in the token", Needs: []string{"token"}, OverriddenBy: exchange, Explains: []string{reason.TrustPolicyRefusesSubject}, Run: e.onToken(e.checkRule)},
		{ID: exchange, Title: "the exchange at the cloud", Needs: []string{"service-account", "token"}, Timeout: callTimeout, Run: e.checkExchange},
		{ID: "token-review", Title: "the cluster's verdict on the token", Needs: []string{"api-server", "token"}, Run: e.onToken(e.checkTokenReview)},
		{ID: "identity", Title: "the identity of the credentials", Needs: []string{exchange}, Run: e.onCredential(e.checkIdentity)},
		{ID: "registry", Title: "pulling from the registry", Needs: []string{exchange}, Timeout: callTimeout, Run: e.onCredential(e.checkRegistry, e.Repository)},
		{ID: "cluster", Title: "access to the named cluster", Needs: []string{exchange}, Timeout: callTimeout, Run: e.onCredential(e.checkCluster, e.Cluster, e.ClusterAddress)},
	}
}

func (c *Config) complete() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
}
