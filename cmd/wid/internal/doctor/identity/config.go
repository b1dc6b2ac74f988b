package identity

import (
	"context"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	trustaws "github.com/workloadid/workloadid/cmd/wid/internal/doctor/trust/aws"
)

// Config names what to examine, and the means. A check without its means is
// skipped or Unknown.
type Config struct {
	Provider auth.Provider // required by Run
	Options  []auth.Option // of the calls that fail, without the ServiceAccount and its token

	// ServiceAccount is the identity to act as. Empty means the identity of the
	// token, of the Pod, or else of the process itself.
	ServiceAccount client.ObjectKey
	Annotations    map[string]string // of the ServiceAccount, for callers without a Client
	Client         client.Client     // of the ServiceAccount's cluster
	RESTConfig     *rest.Config      // of the same cluster; no report repeats its secrets
	ClusterName    string            // the context of a kubeconfig, which remedies name

	Token  auth.SubjectTokenSource // of a token of the ServiceAccount that the caller holds; optional
	Pod    client.ObjectKey        // that gets no credentials; optional
	InPod  bool                    // this process runs in the pod, whose environment is examined
	Getenv func(string) string     // nil means os.Getenv

	IssuerClient *http.Client       // reads the issuer's documents, without credentials; nil means one of its own
	Trust        *trustaws.Reader   // reads what AWS trusts; nil skips its check
	Examination  doctor.Examination // with Cluster, Timeout, ShowPolicy and Progress
}

// Run examines and returns a report with a finding for each of Checks.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := newExamination(ctx, config)
	defer e.pool.CloseIdleConnections()
	x := config.Examination
	x.Subject, x.Checks, x.Decisive = e.subject()+" → "+e.title(), e.checks(), exchange
	x.Secrets = func() []string { return e.secrets }
	return doctor.Run(ctx, x)
}

// Checks returns all checks in their order. Only Run can run them.
func Checks() []doctor.Check { return (&examination{}).checks() }

const (
	callTimeout = 15 * time.Second // of the exchange, which a provider repeats
	exchange    = "exchange"
)

func (e *examination) checks() []doctor.Check {
	type check = doctor.Check
	// A failure of the exchange without a class, and AWS's general one, is
	// explained by whatever failed before it.
	documents := []cause.Reason{cause.SignatureNotVerified, cause.SigningKeyUnavailable, cause.IssuerNotPublic,
		cause.IssuerDidNotAnswer, cause.IssuerCertificateChanged}
	return []check{
		{ID: "service-account", Title: "the ServiceAccount and its annotations", Run: e.checkServiceAccount},
		{ID: "pod", Title: "what the pod was given", Run: e.checkPod},
		{ID: "token-request", Title: "the right to create tokens", Needs: []string{"service-account"},
			Run: e.checkTokenRequest},
		{ID: "token", Title: "the token", Needs: []string{"token-request"}, Run: e.checkToken},
		{ID: "issuer", Title: "the issuer and its published keys", Needs: []string{"token"}, OverriddenBy: exchange,
			Explains: documents, Run: e.checkIssuer},
		{ID: "trust-rule", Title: "the identity's trust in the token", Needs: []string{"token"}, OverriddenBy: exchange,
			Explains: []cause.Reason{cause.TrustPolicyRefusesSubject}, Run: e.checkTrust},
		{ID: exchange, Title: "the exchange at the cloud", Needs: []string{"service-account", "token"}, Timeout: callTimeout,
			Run: e.checkExchange},
	}
}
