package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Check is one of the checks.
type Check struct {
	// Number is its place in the order.
	Number int
	// ID is its stable name.
	ID string
	// Title says what it looks at.
	Title string
	// Needs are the numbers of the checks that must not have failed, nor been skipped because others have.
	Needs []int

	run func(e *examination, ctx context.Context) Finding
}

// Checks returns all checks in their order.
func Checks() []Check {
	return []Check{
		{1, "source", "which source of credentials wins", nil, (*examination).checkSource},
		{2, "token-file", "the token file can be used", nil, (*examination).checkTokenFile},
		{3, "token-format", "the token is a JWT that a key can be found for", []int{2}, (*examination).checkFormat},
		{4, "claims", "the token has the claims that it needs", []int{3}, (*examination).checkClaims},
		{5, "time", "the token is valid now, and clocks agree", []int{4}, (*examination).checkTime},
		{6, "audience", "the token is for this provider", []int{4}, (*examination).judgeAudience},
		{7, "subject", "the token is of the ServiceAccount", []int{4}, (*examination).checkSubject},
		{8, "issuer", "a cloud can reach the token's issuer", []int{4}, (*examination).checkIssuer},
		{9, "identifiers", "the names of the target are well formed", nil, (*examination).checkIdentifiers},
		{10, "discovery", "the issuer's discovery document is public", []int{8}, (*examination).checkDiscovery},
		{11, "keys", "the key is published and the signature is its", []int{10}, (*examination).checkKeys},
		{12, "issuer-tls", "the issuer's certificate", []int{8}, (*examination).checkTLS},
		{13, "api-server", "the API server knows the caller", nil, (*examination).checkAPIServer},
		{14, "service-account", "the ServiceAccount and its annotations", []int{13}, (*examination).checkServiceAccount},
		{15, "pod", "the pod has what the webhook gives it", []int{13}, (*examination).checkPod},
		{16, "token-request", "the caller may create tokens", []int{13, 14}, (*examination).checkTokenRequest},
		{17, "cluster-issuer", "the token is of this cluster", []int{4, 13}, (*examination).checkClusterIssuer},
		{18, "token-review", "the cluster accepts the token", []int{4, 13}, (*examination).checkTokenReview},
		{19, "trust-anchor", "what the cloud trusts fits the token", []int{4, 6, 9}, (*examination).checkAnchor},
		{20, "trust-rule", "the cloud's rule admits the token", []int{4, 9}, (*examination).checkRule},
		{21, "exchange", "the real exchange", []int{3, 4, 5, 6, 7, 9, 14, 16}, (*examination).checkExchange},
		{22, "identity", "whose credentials these are", []int{21}, (*examination).checkIdentity},
		{23, "registry", "the registry accepts them", []int{21}, (*examination).checkRegistry},
		{24, "cluster", "the cluster accepts them", []int{21}, (*examination).checkCluster},
		{25, "helpers", "the endpoint for credentials inside the pod", nil, (*examination).checkHelpers},
	}
}

// examination is one run.
type examination struct {
	Config
	cloud    cloud
	pool     transport.Pool
	account  corev1.ServiceAccount
	read     error // of reading account
	token    heldToken
	fetched  *documents
	minted   mint
	gained   auth.Token
	anchors  *Trust
	trustErr error
	audience string // that a remedy may have the cloud trust. Empty: none
	results  map[int]Result
	blocked  map[int]int // by the check that has failed, or that something is missing from

	helperToken string
	known       *known
	waits       *waits
	public      *contact // of the cloud's own host; nil: not tried

	pod         *corev1.Pod // nil: none was named
	podErr      error       // of reading it
	podIdentity bool        // its credentials come from an endpoint
	barred      bool        // by the API server, whose client is gone then
	podsOwn     podsOwn     // what it has that the annotations do not say

	// adopted says where Annotations are from, if a pod has its identity in its environment. declared is the ServiceAccount as
	// it is in the cluster then, for Annotations take precedence.
	adopted  string
	declared *corev1.ServiceAccount
	// byFile says that the exchange goes by a file for Google's SDKs, which names the token.
	byFile bool
}

// Run examines. It always returns a report with a finding for each check, within Config.Timeout; when ctx ends, what is left
// is Unknown. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *Report {
	config.complete()
	e := &examination{Config: config, results: map[int]Result{}, blocked: map[int]int{}}
	ctx, e.known = withKnown(ctx)
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, config.Timeout-lastWords(config.Timeout))
	defer cancel()
	ctx, e.waits = withWaits(ctx)
	e.watch()
	defer e.pool.CloseIdleConnections()
	report := &Report{}
	if config.Provider == nil {
		report.Findings = []Finding{{Number: 1, ID: "source", Result: Fail, Message: "no provider was given", Remedy: "name a provider"}}
		return report
	}
	report.Provider = config.Provider.GetName()
	e.cloud = cloudOf(report.Provider)
	learn(ctx, e.RESTConfig, e.apiServer())
	e.prepare(ctx)
	if sa := e.serviceAccount(); sa.Name != "" {
		report.ServiceAccount = shown(sa.Namespace + "/" + sa.Name)
	}
	for _, check := range Checks() {
		f := e.perform(ctx, check)
		f = f.printable()
		f.Number, f.ID = check.Number, check.ID
		e.results[check.Number] = f.Result
		switch {
		case f.Result == Fail && !f.tentative:
			e.blocked[check.Number] = check.Number
		case f.Result == Skip && f.Needs != 0:
			e.blocked[check.Number] = f.Needs
		}
		report.Findings = append(report.Findings, f)
	}
	e.tellOwn(report)
	reconcile(report)
	e.scrub(whole, report)
	return report
}

// perform also turns a panic into a finding: what is examined may be hostile, and a doctor does not die of it.
func (e *examination) perform(ctx context.Context, check Check) (f Finding) {
	if slices.Contains(e.Skip, check.ID) {
		return skip("not wanted")
	}
	for _, needed := range check.Needs {
		if by := e.blocked[needed]; by != 0 {
			return Finding{Result: Skip, Needs: by, Message: fmt.Sprintf("skipped: needs check %d", by)}
		}
	}
	before := e.waits.number()
	defer func() {
		if p := recover(); p != nil {
			f = unknown(fmt.Sprintf("the check failed with a %T", p), "report this")
		}
	}()
	return e.waits.settle(ctx, check.run(e, ctx), before)
}

// apiServer is how findings call it.
func (e *examination) apiServer() string { return named("the API server", e.RESTConfig) }

func pass(format string, args ...any) Finding {
	return Finding{Result: Pass, Message: fmt.Sprintf(format, args...)}
}

func skip(message string) Finding { return Finding{Result: Skip, Message: message} }

func unknown(message, remedy string) Finding {
	return Finding{Result: Unknown, Message: message, Remedy: remedy}
}

func fail(class, remedy, format string, args ...any) Finding {
	return Finding{Result: Fail, Class: class, Remedy: remedy, Message: fmt.Sprintf(format, args...)}
}

func (f Finding) as(r Result) Finding {
	f.Result = r
	return f
}

// near gives the correction of a setting that nearly fits.
func (f Finding) near(correction string) Finding {
	f.nearly = correction
	return f
}

func (f Finding) with(fields ...Field) Finding {
	f.Fields = append(f.Fields, fields...)
	return f
}

func differs(name, observed, expected string) Field {
	return Field{Name: name, Observed: exactly(observed), Expected: exactly(expected), Differs: true}
}

func same(name, observed string) Field { return Field{Name: name, Observed: exactly(observed)} }

// exactly is shown, with quotes where one would not see what is there otherwise.
func exactly(s string) string {
	if oneLine(s) == s {
		return shown(s)
	}
	return shown(strconv.Quote(s))
}

// shown makes a value from outside fit for a terminal.
func shown(s string) string { return redact.Text(s) }

func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}
