package bootstrap

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
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

	// Of the arguments.
	urlErr    error
	id        string
	token     bootstrap.Token // zero: its secret is not known
	tokenErr  error
	isWhole   bool // Config.Token is a whole token
	pins      bootstrap.PinSet
	wrongPins []string

	published  *corev1.ConfigMap // cluster-info as the administrator reads it
	stored     *bootstrap.TokenConfig
	discovered *bootstrap.ClusterInfo
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

// checks have causes before symptoms. A discovery that works outranks the cluster's objects, which may be another cluster's.
func (e *examination) checks() []doctor.Check {
	args, by := []string{"args"}, "discovery"
	return []doctor.Check{
		{ID: "args", Title: "the form of address, token and pins", Run: e.checkArguments},
		{ID: "cluster-info", Title: "the ConfigMap cluster-info", Needs: args, OverriddenBy: by, Run: e.checkPublished},
		{ID: "access", Title: "the right of anonymous clients to read it", Needs: []string{"cluster-info"}, OverriddenBy: by, Run: e.checkAccess},
		{ID: "token", Title: "the Secret of the token", Needs: args, OverriddenBy: by, Run: e.checkToken},
		{ID: "signature", Title: "the signature of cluster-info", Needs: []string{"cluster-info", "token"}, OverriddenBy: by, Run: e.checkSignature},
		{ID: by, Title: "the discovery from this machine", Needs: args, Timeout: discoveryTimeout + time.Second, Run: e.checkDiscovery},
		{ID: "login", Title: "the login with the token", Needs: []string{by}, Run: e.checkLogin},
	}
}

// Run examines a discovery by token. No finding holds the secret of the token. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	if config.Now == nil {
		config.Now = time.Now
	}
	e := &examination{Config: config}
	e.parse()
	subject := "bootstrap discovery at " + redact.URL(config.Server)
	if config.Server == "" || isToken(subject) {
		subject = "bootstrap discovery"
	}
	return doctor.Run(ctx, doctor.Examination{Subject: subject, Cluster: config.Cluster, Checks: e.checks(),
		Decisive: "discovery", Skip: config.Skip, Timeout: config.Timeout, Progress: config.Progress, Secrets: e.secrets})
}

func (e *examination) parse() {
	server := e.Server
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	_, e.urlErr = (&bootstrap.ClusterInfo{Server: server}).Encode() // refuses everything but addresses of API servers
	if strings.Contains(e.Token, ".") {
		e.token, e.tokenErr = bootstrap.ParseToken(e.Token)
		e.id, e.isWhole = e.token.ID(), e.tokenErr == nil
	} else if bootstrap.ValidTokenID(e.Token) {
		e.id = e.Token
	}
	for _, text := range e.Pins {
		pin, err := bootstrap.ParsePin(text)
		if err != nil {
			e.wrongPins = append(e.wrongPins, text)
			continue
		}
		e.pins = append(e.pins, pin)
	}
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
