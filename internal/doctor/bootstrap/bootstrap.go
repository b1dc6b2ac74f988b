package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	tokenutil "k8s.io/cluster-bootstrap/token/util"
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
}

// examination is one run. Checks leave here what later ones need.
type examination struct {
	Config

	side   kube.Side
	id     string
	token  bootstrap.Token // zero: its secret is not known
	pins   bootstrap.PinSet
	err    error    // of the arguments
	groups []string // of the token's Secret
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

// checks have causes before symptoms. A discovery that works outranks the cluster's objects, which may be another cluster's.
func (e *examination) checks() []doctor.Check {
	args := []string{"args"}
	return []doctor.Check{
		{ID: "args", Title: "the form of address, token and pins", Run: e.checkArguments},
		{ID: "cluster", Title: "cluster-info, its readers, the token and the signature", Needs: args, OverriddenBy: "discovery", Run: e.checkCluster},
		{ID: "discovery", Title: "the discovery from this machine", Needs: args, Timeout: discoveryTimeout + time.Second, Run: e.checkDiscovery},
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
	if e.id = e.Token; !tokenutil.IsValidBootstrapTokenID(e.Token) && e.Token != "" {
		e.token, e.err = bootstrap.ParseToken(e.Token)
		e.id = e.token.ID()
	}
	pins, err := bootstrap.ParsePins(e.Pins...)
	e.pins, e.err = pins, cmp.Or(e.err, err)
	return e
}

// checkArguments examines what must not leave this machine.
func (e *examination) checkArguments(context.Context) doctor.Finding {
	err := e.err
	switch {
	case isToken(e.Server) || isToken(e.ServerName):
		err = errors.New("there is a token in the place of the server")
	case e.Server == "" && e.Client == nil:
		err = errors.New("there is no server")
	}
	if err != nil {
		return e.fault("ArgumentMalformed", "An argument is malformed: %s.", err)
	}
	return doctor.Passed("The arguments are well formed.")
}

var anyToken = regexp.MustCompile(`(?:\A|[^a-z0-9.-])[a-z0-9]{6}\.([a-z0-9]{16})(?:\z|[^a-z0-9.-])`)

// isToken finds a token in the wrong argument, so that no report repeats it and no resolver is asked for it. The secret of a token
// hardly ever lacks a digit, unlike a domain of that length.
func isToken(text string) bool {
	found := anyToken.FindStringSubmatch(text)
	return found != nil && strings.ContainsAny(found[1], "0123456789")
}

func (e *examination) secrets() []string {
	_, half, _ := strings.Cut(e.token.Reveal(), ".")
	all := []string{e.token.Reveal(), half}
	if e.Token != e.id {
		all = append(all, e.Token)
	}
	return all
}
