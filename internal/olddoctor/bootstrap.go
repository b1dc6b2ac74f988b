package doctor

import (
	"context"
	"crypto/x509"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/redact"
)

// BootstrapConfig says which discovery by token to examine and by what means. What is left out makes the checks that need it
// Skip or Unknown.
type BootstrapConfig struct {
	// Server is the address of the API server: "host", "host:port" or an https URL. Required.
	Server string
	// ServerName is what the server's certificate is checked against. Empty: the host of Server.
	ServerName string
	// Token is the token, "<id>.<secret>", or its ID alone. The ID tells whether there is a signature; to verify it takes the
	// secret, or a Client that may read it. It is sent to the cluster once that has proved who it is, and is in no finding.
	Token string
	// Pins are those of the cluster's certificate authorities, each "sha256:<64 hexadecimal digits>", as somebody wrote them.
	Pins []string
	// WithoutPins says that there are to be none: whoever knows the token is trusted.
	WithoutPins bool
	// Client is an administrator's, for the token's Secret. It needs no kinds in its scheme. Nil: the Secret is not looked at.
	Client client.Reader
	// RESTConfig leads to the cluster of Client, to see its clock and to keep its credentials out of findings. Nil: what ends
	// is judged by the clock of Server.
	RESTConfig *rest.Config

	// Pause is the time after which a signature that does not fit is read once more: it may lag behind a change. 0: 5 seconds.
	Pause time.Duration
	// Skip are the stable names of checks that are not wanted.
	Skip []string
	// Timeout bounds everything together. 0: a minute, which is also the most.
	Timeout time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

const defaultPause = 5 * time.Second

// bootstrapping is one run.
type bootstrapping struct {
	BootstrapConfig

	// Of the arguments.
	url       string
	urlErr    error
	id        string
	token     bootstrap.Token // zero: its secret is not known
	whole     bool            // the caller has given the whole token
	tokenErr  error
	pins      bootstrap.PinSet
	wrongPins []string

	// served is the data of cluster-info as strangers get it, chain the certificates that the server has shown.
	served map[string]string
	chain  []*x509.Certificate
	clock  serverClock // of the administrator's API server, or else of the server, which nobody has verified
	// stored says that the Secret holds the token that was given.
	stored bool
	// info is what cluster-info says, pinned are those of its authorities that a pin names.
	info   *bootstrap.ClusterInfo
	pinned []*x509.Certificate
	// discovered is what bootstrap.Discover has returned.
	discovered *bootstrap.ClusterInfo
}

// BootstrapChecks returns the checks of RunBootstrap in their order.
func BootstrapChecks() []Check { return checksOf((&bootstrapping{}).steps()) }

func (b *bootstrapping) steps() []step {
	const args, server, clock, token, signature, pins, tls, discovery, login = "bootstrap-args", "bootstrap-server",
		"bootstrap-clock", "bootstrap-token", "bootstrap-signature", "bootstrap-pins", "bootstrap-tls", "bootstrap-discovery", "bootstrap-login"
	return []step{
		{args, "address, token and pins are well formed", nil, b.checkArguments},
		{server, "strangers can read cluster-info", []string{args}, b.checkServer},
		{clock, "this machine's clock agrees with the server's", []string{args}, b.checkClock},
		{token, "the token's Secret", []string{args}, b.checkSecret},
		{signature, "cluster-info is signed with the token", []string{server, token}, b.checkSignature},
		{pins, "a certificate authority is pinned", []string{server}, b.checkPins},
		{tls, "the server's certificate is from a pinned authority", []string{pins}, b.checkCertificate},
		{discovery, "the discovery itself", []string{signature, tls}, b.checkDiscover},
		{login, "the token logs in", []string{discovery}, b.checkLogin},
	}
}

// RunBootstrap examines a discovery by token. It needs no provider and always returns a report with a finding for each
// check, within BootstrapConfig.Timeout; when ctx ends, what is left is Unknown. Nothing is sent to the network before the
// arguments have been judged, and no finding holds the token's secret. It is safe for concurrent use.
func RunBootstrap(ctx context.Context, config BootstrapConfig) *Report {
	config.Timeout, config.Now = limited(config.Timeout, config.Now)
	if config.Pause <= 0 {
		config.Pause = defaultPause
	}
	ctx, secrets := withKnown(ctx)
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, config.Timeout-lastWords(config.Timeout))
	defer cancel()
	ctx, _ = withWaits(ctx)
	config.RESTConfig = watchedConfig(config.RESTConfig)
	config.Client = watched(config.Client, named("the API server of the kubeconfig", config.RESTConfig))
	b := &bootstrapping{BootstrapConfig: config}
	b.parse()
	b.learn(ctx)
	server := redact.URL(config.Server)
	if isToken(server) {
		server = "no server"
	}
	report := &Report{Target: "bootstrap discovery at " + shown(server),
		Findings: performSteps(ctx, b.steps(), config.Skip)}
	settleSecret(report)
	settleLogin(report)
	b.settleSignature(report)
	lastly(whole, b.learn, config.Timeout)
	report.scrub(secrets.all())
	return report
}

// learn has the run know the token, or what was meant to be one, and the administrator's credentials.
func (b *bootstrapping) learn(ctx context.Context) {
	if b.Token != b.id {
		knownTo(ctx).add(b.Token)
	}
	knownTo(ctx).add(b.token.Reveal())
	learn(ctx, b.RESTConfig, named("the API server of the kubeconfig", b.RESTConfig))
}

// settleSignature withdraws the suspicion that somebody is in between where a pinned authority has vouched for the same
// cluster-info.
func (b *bootstrapping) settleSignature(r *Report) {
	signature, verified := r.Of("bootstrap-signature"), r.Of("bootstrap-tls")
	n := len(signature.Causes) - 1
	if signature.Class == "B15" && n > 0 && signature.Causes[n] == inBetween && verified.Result == Pass {
		signature.Causes = signature.Causes[:n]
		signature.Remedy = b.haveSigned()
		signature.Message += "; nobody is in between, since a pinned authority vouches for cluster-info"
	}
}

// settleSecret withdraws that the Secret could not be read where the token itself has shown that it is good.
func settleSecret(r *Report) {
	secret, discovery, login := r.Of("bootstrap-token"), r.Of("bootstrap-discovery"), r.Of("bootstrap-login")
	if secret.Result == Unknown && discovery.Result == Pass && login.Result == Pass {
		secret.Result, secret.Remedy = Skip, ""
		secret.Message = "the token signs and logs in, so its Secret need not be read"
		if secret.elsewhere {
			secret.Message += "; the kubeconfig is of another cluster, it seems"
		}
	}
}

func (b *bootstrapping) parse() {
	server := b.Server
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	b.url = strings.TrimSuffix(server, "/")
	_, b.urlErr = (&bootstrap.ClusterInfo{Server: server}).Encode() // refuses what no address of a server is
	if strings.Contains(b.Token, ".") {
		b.token, b.tokenErr = bootstrap.ParseToken(b.Token)
		b.id, b.whole = b.token.ID(), b.tokenErr == nil
	} else if bootstrap.ValidTokenID(b.Token) {
		b.id = b.Token
	}
	for _, text := range b.Pins {
		pin, err := bootstrap.ParsePin(text)
		if err != nil {
			b.wrongPins = append(b.wrongPins, text)
			continue
		}
		b.pins = append(b.pins, pin)
	}
}
