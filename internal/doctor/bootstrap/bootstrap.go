package bootstrap

import (
	"cmp"
	"context"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/redact"
)

// Config says which discovery by token to examine.
type Config struct {
	// Server is the address of the API server: "host", "host:port" or an https URL. Empty: only the objects that Client reads.
	Server string
	// ServerName is the name in the server's certificate. Empty: the host of Server.
	ServerName string
	// Token is "<id>.<secret>", or the ID alone.
	Token string
	// Pins are those of the cluster's CAs, each "sha256:<64 hexadecimal digits>".
	Pins []string
	// WithoutPins does without pins.
	WithoutPins bool
	// Client examines the objects of the cluster as an administrator. Its scheme has the kinds of client-go. Nil: they are not examined.
	Client client.Client
	// Flags lead kubectl and wid to the cluster of Client. Empty: a context for the reader to fill in.
	Flags string
	// Cluster, Skip, Timeout and Progress are those of doctor.Examination.
	Cluster  string
	Skip     []string
	Timeout  time.Duration
	Progress func(doctor.Check)
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// examination is one run. Checks leave here what later ones need.
type examination struct {
	Config

	side     kube.Side
	id       string
	token    bootstrap.Token // zero: its secret is not known
	tokenErr error
	pins     bootstrap.PinSet
	pinErr   error

	published  *corev1.ConfigMap      // cluster-info as the administrator reads it
	stored     *bootstrap.TokenConfig // nil: there is none, or it could not be read
	discovered *bootstrap.ClusterInfo
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

// checks have causes before symptoms. A discovery that works outranks the cluster's objects, which may be another cluster's.
func (e *examination) checks() []doctor.Check {
	args, by := []string{"args"}, "discovery"
	return []doctor.Check{
		{ID: "args", Title: "the form of address, token and pins", Run: e.checkArguments},
		{ID: "cluster-info", Title: "the ConfigMap cluster-info", Needs: args, OverriddenBy: by, Run: e.onCluster(e.checkPublished)},
		{ID: "access", Title: "the right of anonymous clients to read it", Needs: []string{"cluster-info"}, OverriddenBy: by, Run: e.onCluster(e.checkAccess)},
		{ID: "token", Title: "the Secret of the token", Needs: args, OverriddenBy: by, Run: e.onCluster(e.checkToken)},
		{ID: "signature", Title: "the signature of cluster-info", Needs: []string{"cluster-info", "token"}, OverriddenBy: by, Run: e.onCluster(e.checkSignature)},
		{ID: by, Title: "the discovery from this machine", Needs: args, Timeout: discoveryTimeout + time.Second, Run: e.checkDiscovery},
		{ID: "login", Title: "the login with the token", Needs: []string{by}, Run: e.checkLogin},
	}
}

// Run examines a discovery by token. No finding holds the secret of the token. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := newExamination(config)
	subject := "bootstrap discovery at " + redact.URL(config.Server)
	if config.Server == "" || isToken(subject) {
		subject = "bootstrap discovery"
	}
	return doctor.Run(ctx, doctor.Examination{Subject: subject, Cluster: config.Cluster, Checks: e.checks(),
		Decisive: "discovery", Skip: config.Skip, Timeout: config.Timeout, Progress: config.Progress, Secrets: e.secrets})
}

func newExamination(config Config) *examination {
	e := &examination{Config: config, side: kube.Side{Flags: cmp.Or(config.Flags, "--context CLUSTER"), Examined: config.Client != nil}}
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.id = e.Token; !bootstrap.ValidTokenID(e.Token) && e.Token != "" {
		e.token, e.tokenErr = bootstrap.ParseToken(e.Token)
		e.id = e.token.ID()
	}
	e.pins, e.pinErr = bootstrap.ParsePins(e.Pins...)
	return e
}

// checkArguments examines what must not leave this machine.
func (e *examination) checkArguments(context.Context) doctor.Finding {
	switch {
	case e.Server == "" && e.Client == nil:
		return e.fault("ServerMalformed", "There is no server.")
	case isToken(e.Server) || isToken(e.ServerName):
		return e.fault("ServerMalformed", "There is a token in the place of the server.")
	case e.tokenErr != nil:
		return e.fault("TokenMalformed", "The token is malformed: %s.", e.tokenErr)
	case e.pinErr != nil:
		return e.fault("PinMalformed", "The pin is malformed: %s.", e.pinErr)
	}
	return doctor.Passed("The arguments are well formed, with %s.", kube.Count(len(e.pins), "pin"))
}

var anyToken = regexp.MustCompile(`(?:\A|[^a-z0-9.-])[a-z0-9]{6}\.([a-z0-9]{16})(?:\z|[^a-z0-9.-])`)

// isToken finds a token in the wrong argument, so that no report repeats it and no resolver is asked for it. The secret of a token
// hardly ever lacks a digit, unlike a domain of that length.
func isToken(text string) bool {
	found := anyToken.FindStringSubmatch(text)
	return found != nil && strings.ContainsAny(found[1], "0123456789")
}

func (e *examination) secrets() []string {
	var secrets []string
	if e.Token != e.id {
		secrets = append(secrets, e.Token)
	}
	if e.stored != nil {
		secrets = append(secrets, halves(e.stored.Token)...)
	}
	return append(secrets, halves(e.token)...)
}

func halves(t bootstrap.Token) []string {
	_, half, _ := strings.Cut(t.Reveal(), ".")
	return []string{t.Reveal(), half}
}
