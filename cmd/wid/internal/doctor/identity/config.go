package identity

import (
	"context"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	reason "github.com/workloadid/workloadid/doctor"
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
	// Client is that of the ServiceAccount's cluster.
	Client client.Client
	// RESTConfig is the access to the same cluster, whose address the report names.
	RESTConfig *rest.Config
	// ClusterName names the cluster in the report: the context of a kubeconfig.
	ClusterName string

	// Token is the source of a token of the ServiceAccount that the caller holds. Optional.
	Token auth.SubjectTokenSource
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

	// Repository is an artifact repository to pull from, such as 123456789012.dkr.ecr.eu-central-1.amazonaws.com/app.
	Repository string
	// Cluster, ClusterAddress and ClusterCA (in PEM) name a cluster to reach, as for auth.GetRESTConfig.
	Cluster, ClusterAddress, ClusterCA string

	// ShowPolicy keeps the commands that make a cloud trust more.
	ShowPolicy bool
	// Skip are the IDs of checks that the caller does not want.
	Skip []string
	// Timeout bounds everything together. Zero means a minute.
	Timeout time.Duration
	// Progress is called before each check.
	Progress func(doctor.Check)
}

// Run examines and returns a report with a finding for each of Checks.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := newExamination(ctx, config)
	defer e.pool.CloseIdleConnections()
	return doctor.Run(ctx, doctor.Examination{
		Subject:    e.subject() + " → " + e.title(),
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
	anchor := append(slices.Clone(documents), reason.IssuerNotTrusted, reason.NoFederatedCredential, reason.AudienceNotTrusted, reason.TokenWithoutAudience,
		reason.AudienceOfAnotherService)
	return []check{
		{ID: "service-account", Title: "the ServiceAccount and its annotations", Run: e.checkServiceAccount},
		{ID: "pod", Title: "what the pod was given", Run: e.checkPod},
		{ID: "token-request", Title: "the right to create tokens", Needs: []string{"service-account"}, Run: e.checkTokenRequest},
		{ID: "token", Title: "the token", Needs: []string{"token-request"}, Run: e.checkToken},
		{ID: "issuer", Title: "the issuer and its published keys", Needs: []string{"token"}, OverriddenBy: exchange, Explains: documents, Run: e.checkIssuer},
		{ID: "trust-anchor", Title: "the issuer that the cloud trusts", Needs: []string{"token"}, OverriddenBy: exchange, Explains: anchor, Run: e.onTrust(doctor.Trust.Anchor)},
		{ID: "trust-rule", Title: "the identity's trust in the token", Needs: []string{"token"}, OverriddenBy: exchange, Explains: []string{reason.TrustPolicyRefusesSubject}, Run: e.onTrust(doctor.Trust.Rule)},
		{ID: exchange, Title: "the exchange at the cloud", Needs: []string{"service-account", "token"}, Timeout: callTimeout, Run: e.checkExchange},
		{ID: "registry", Title: "pulling from the registry", Needs: []string{exchange}, Timeout: callTimeout, Run: e.checkRegistry},
		{ID: "cluster", Title: "access to the named cluster", Needs: []string{exchange}, Timeout: callTimeout, Run: e.checkCluster},
	}
}
