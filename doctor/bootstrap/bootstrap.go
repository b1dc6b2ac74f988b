package bootstrap

import (
	"context"
	"crypto/x509"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/redact"
)

// Config says which discovery by token to examine.
type Config struct {
	// Server is the address of the API server: "host", "host:port" or an https URL. Required.
	Server string
	// ServerName is the name in the server's certificate. Empty: the host of Server.
	ServerName string
	// Token is "<id>.<secret>", or the ID alone.
	Token string
	// Pins are those of the cluster's CAs, each "sha256:<64 hexadecimal digits>".
	Pins []string
	// WithoutPins does without pins.
	WithoutPins bool
	// Client reads the Secret of the token as an administrator. Its scheme needs no kinds. Nil: the Secret is not read.
	Client client.Reader
	// Pause is the time after which a wrong signature is read once more, since it may lag behind a change. Zero means 5 seconds.
	Pause time.Duration
	// Cluster, Skip, Timeout and Progress are those of doctor.Examination.
	Cluster  string
	Skip     []string
	Timeout  time.Duration
	Progress func(doctor.Check)
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

const defaultPause = 5 * time.Second

// examination is one run. Checks leave here what later ones need.
type examination struct {
	Config

	// Of the arguments.
	url       string
	urlErr    error
	id        string
	token     bootstrap.Token // zero: its secret is not known
	tokenErr  error
	isWhole   bool // Config.Token is a whole token
	pins      bootstrap.PinSet
	wrongPins []string

	served     map[string]string   // data of cluster-info as anonymous clients get it
	chain      []*x509.Certificate // that the server has shown
	ahead      time.Duration       // of the server's clock
	stored     *bootstrap.TokenConfig
	info       *bootstrap.ClusterInfo
	pinned     []*x509.Certificate
	isVerified bool // a pinned CA vouches for cluster-info
	discovered *bootstrap.ClusterInfo
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

// checks have causes before symptoms.
func (e *examination) checks() []doctor.Check {
	after := func(ids ...string) []string { return ids }
	return []doctor.Check{
		{ID: "args", Title: "the form of address, token and pins", Run: e.checkArguments},
		{ID: "server", Title: "cluster-info, as anonymous clients read it", Needs: after("args"), Run: e.checkServer},
		{ID: "clock", Title: "the clocks of this machine and the server", Needs: after("args"), Run: e.checkClock},
		{ID: "token", Title: "the Secret of the token", Needs: after("args"), Run: e.checkSecret},
		{ID: "pins", Title: "the pins of the CAs", Needs: after("server"), Run: e.checkPins},
		{ID: "tls", Title: "the server's certificate", Needs: after("pins"), Run: e.checkCertificate},
		{ID: "signature", Title: "the signature of cluster-info", Needs: after("server", "token"), Timeout: signatureTimeout, Run: e.checkSignature},
		{ID: "discovery", Title: "the discovery", Needs: after("signature", "tls"), Timeout: discoveryTimeout + time.Second, Run: e.checkDiscovery},
		{ID: "login", Title: "the login with the token", Needs: after("discovery"), Run: e.checkLogin},
	}
}

// Run examines a discovery by token. No finding holds the secret of the token. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	if config.Pause <= 0 {
		config.Pause = defaultPause
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	e := &examination{Config: config}
	e.parse()
	server := redact.URL(config.Server)
	if isToken(server) {
		server = "no server"
	}
	return doctor.Run(ctx, doctor.Examination{Subject: "bootstrap discovery at " + server, Cluster: config.Cluster, Checks: e.checks(),
		Decisive: "login", Skip: config.Skip, Timeout: config.Timeout, Progress: config.Progress, Secrets: e.secrets})
}

func (e *examination) parse() {
	server := e.Server
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	e.url = strings.TrimSuffix(server, "/")
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

// now is the server's time if this machine's clock differs: the cluster's clocks decide about expiry.
func (e *examination) now() time.Time { return e.Now().Add(e.ahead) }
