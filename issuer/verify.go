package issuer

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
)

// Verification configures [Verify].
type Verification struct {
	// Cluster is the API server that issues the tokens. Nil skips the checks
	// that need it.
	Cluster *rest.Config
	// Token is a token of a ServiceAccount. Empty: Verify requests one.
	Token string
	// ServiceAccount is the ServiceAccount whose tokens Verify requests. Empty
	// means default/default.
	ServiceAccount types.NamespacedName
	// Issuer is the issuer to verify. Empty means the token's issuer. During a
	// move, the former issuer differs from it.
	Issuer string
	// Keys are the keys that were uploaded to a cloud, such as the keys of
	// Google's pool provider. Such a cloud reads no documents. KeysIssuer is
	// the issuer that the cloud has with them, or "" if unknown.
	Keys       []byte
	KeysIssuer string
	// MaxTokenLifetime is the Publisher's. Zero means 24 hours.
	MaxTokenLifetime time.Duration
	// HTTPClient reads the documents as a cloud does. Nil means a client with
	// the system's CAs. Verify follows no redirect. Keys at another host than
	// the issuer's could lie in the own network. If the Transport is not an
	// *http.Transport, a client with the system's CAs reads such keys.
	HTTPClient *http.Client
}

// CheckName names a comparison of [Verify].
type CheckName string

// The comparisons of [Verify], in the order in which it makes them.
const (
	CheckTokenReview   CheckName = "TokenReview"   // the API server accepts the given token
	CheckIssuerOfToken CheckName = "IssuerOfToken" // the issuer is the token's, byte for byte
	CheckIssuerURL     CheckName = "IssuerURL"     // the issuer is an https URL without query and fragment
	CheckIssuerPublic  CheckName = "IssuerPublic"  // its address can be a public one, without a port; a warning
	// CheckDiscoveryReachable checks that the discovery document is served over
	// https, without a redirect.
	CheckDiscoveryReachable CheckName = "DiscoveryReachable"
	CheckDiscoveryPublic    CheckName = "DiscoveryPublic"    // with status 200
	CheckDiscoveryAnonymous CheckName = "DiscoveryAnonymous" // an API server lets anonymous clients read it
	CheckDiscoveryDocument  CheckName = "DiscoveryDocument"  // it holds what clouds read
	CheckDiscoveryIssuer    CheckName = "DiscoveryIssuer"    // it names the issuer, byte for byte
	CheckKeysReachable      CheckName = "KeysReachable"      // the keys are served over https, without a redirect
	CheckKeysPublic         CheckName = "KeysPublic"         // with status 200
	CheckContentType        CheckName = "ContentType"        // both have their content types
	// CheckKeysIssuer checks that the cloud has the keys for this issuer.
	// Verify makes it only with uploaded keys.
	CheckKeysIssuer    CheckName = "KeysIssuer"
	CheckKeySet        CheckName = "KeySet"        // the keys are a JSON web key set without private keys
	CheckKeysOfCluster CheckName = "KeysOfCluster" // every key of the API server is published
	// CheckForeignKeys checks that no other key is published. A failure is a
	// warning, because a former key stays for a time.
	CheckForeignKeys CheckName = "ForeignKeys"
	CheckSigningKey  CheckName = "SigningKey" // the key that signed the token is published
	CheckSignature   CheckName = "Signature"  // and verifies the token
	CheckAlgorithm   CheckName = "Algorithm"  // Entra accepts the algorithm; a warning
	// CheckTokenLifetime checks that the API server grants no token that lives
	// longer than MaxTokenLifetime.
	CheckTokenLifetime CheckName = "TokenLifetime"
)

// Check is one comparison of [Verify].
type Check struct {
	Name CheckName `json:"name"`
	// OK is false if the check failed or was skipped. Skipped says why Verify
	// did not make the check.
	OK      bool   `json:"ok"`
	Skipped string `json:"skipped,omitempty"`
	// Warning means that a failure breaks only some clouds or set-ups.
	Warning bool `json:"warning,omitempty"`
	// Problem and Remedy are a sentence each. Got and Want hold the wrong line
	// and the right one. Each is printable and has at most 1 KiB.
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	Got     string `json:"got,omitempty"`
	Want    string `json:"want,omitempty"`
	// StatusCode is the status code of an answer, unless it is 200.
	StatusCode int `json:"statusCode,omitempty"`
}

// Failed reports whether the check was made and found a mistake. A warning
// counts too.
func (c Check) Failed() bool { return !c.OK && c.Skipped == "" }

// Verify asks the API server for a token and its keys, and the issuer for its
// documents as a cloud does, and compares them. The result holds failed checks.
// Verify returns an error only if it cannot make the [Verification]. It leaves
// out a check that depends on a failed one.
func Verify(ctx context.Context, v Verification) ([]Check, error) {
	x, err := newVerifier(ctx, v)
	if err != nil {
		return nil, err
	}
	if x.Issuer = cmp.Or(v.Issuer, x.claims.Issuer); x.Issuer == "" {
		return nil, fmt.Errorf("name the issuer, or a cluster or token whose issuer is meant: %s", x.noToken)
	}
	if x.cluster != nil {
		if x.expected, err = x.cluster.keys(ctx); err != nil {
			return nil, err
		}
	}
	if x.checkToken(ctx); x.checkURL() {
		x.checkDocuments(ctx)
	}
	x.checkLifetime(ctx)
	return x.checks, nil
}

// IssuerOfTokens returns the issuer that the tokens of the cluster name. It
// uses only Cluster, Token and ServiceAccount.
func (v Verification) IssuerOfTokens(ctx context.Context) (string, error) {
	x, err := newVerifier(ctx, v)
	if err == nil && x.claims.Issuer == "" {
		err = fmt.Errorf("the issuer is unknown: %s", cmp.Or(x.noToken, "the token names none"))
	}
	if err != nil {
		return "", err
	}
	return x.claims.Issuer, nil
}

func newVerifier(ctx context.Context, v Verification) (*verifier, error) {
	x := &verifier{Verification: v}
	if v.Cluster != nil {
		var err error
		if x.cluster, err = newKeysClient(v.Cluster); err != nil {
			return nil, err
		}
		if x.kube, err = client.New(v.Cluster, client.Options{}); err != nil {
			return nil, fmt.Errorf("connect to the API server: %w", err)
		}
	}
	return x, x.findToken(ctx)
}

// verifier is the state of one Verify.
type verifier struct {
	Verification
	cluster  *keysClient   // nil without an API server
	kube     client.Client // nil without an API server
	claims   *jwt.Claims   // empty without a token
	token    string
	noToken  string // why no token is known
	expected keySet // the API server's keys
	checks   []Check
}

func (x *verifier) passed(name CheckName) bool {
	x.checks = append(x.checks, Check{Name: name, OK: true})
	return true
}

// check records a comparison whose failure c describes.
func (x *verifier) check(ok bool, c Check) bool {
	if ok {
		return x.passed(c.Name)
	}
	return x.failed(c)
}

func (x *verifier) skipped(name CheckName, why string) {
	x.checks = append(x.checks, Check{Name: name, Skipped: redact.Line(why)})
}

// failed bounds texts, because issuers, documents and tokens may be hostile.
func (x *verifier) failed(c Check) bool {
	for _, text := range []*string{&c.Problem, &c.Remedy, &c.Got, &c.Want} {
		*text = redact.Line(*text)
	}
	x.checks = append(x.checks, c)
	return c.Warning
}

// findToken returns the token of the caller, or requests a token of the
// ServiceAccount.
func (x *verifier) findToken(ctx context.Context) (err error) {
	x.claims, x.token = &jwt.Claims{}, x.Token
	if x.Token == "" && x.Cluster != nil {
		x.token, err = x.requestToken(ctx, probeLifetime)
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		x.noToken = x.notRequested(err)
		return nil
	case err != nil:
		return fmt.Errorf("request a token of ServiceAccount %q: %w", x.account(), err)
	case x.token == "":
		x.noToken = "there is no token"
		return nil
	}
	if x.claims, err = jwt.Parse(x.token); err != nil {
		return fmt.Errorf("the token is malformed: %w", err)
	}
	return nil
}

const (
	probeLifetime = 10 * time.Minute
	// noAudience is an audience that no service accepts.
	noAudience = "workloadid-issuer-verify"
)

func (x *verifier) account() types.NamespacedName {
	return cmp.Or(x.ServiceAccount, types.NamespacedName{Namespace: "default", Name: "default"})
}

func (x *verifier) notRequested(err error) string {
	return fmt.Sprintf("no token of ServiceAccount %q could be requested: %s", x.account(), kubeerror.Message(err))
}

func (x *verifier) requestToken(ctx context.Context, lifetime time.Duration) (string, error) {
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{noAudience},
		ExpirationSeconds: &seconds}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: x.account().Namespace, Name: x.account().Name}}
	err := x.kube.SubResource("token").Create(ctx, sa, request)
	return request.Status.Token, err
}

// checkToken compares the issuer. Without a token of the caller, an issuer that
// differs in more than its spelling is a former or a coming one.
func (x *verifier) checkToken(ctx context.Context) {
	x.reviewToken(ctx)
	got, nearly := x.claims.Issuer, difference(x.claims.Issuer, x.Issuer)
	switch {
	case x.token == "":
		x.skipped(CheckIssuerOfToken, x.noToken)
	case got == x.Issuer:
		x.passed(CheckIssuerOfToken)
	case nearly == "" && x.Token == "":
		x.skipped(CheckIssuerOfToken,
			fmt.Sprintf("the API server issues tokens of %q; the issuer is taken for a former or a coming one", got))
	default:
		x.failed(Check{Name: CheckIssuerOfToken, Problem: "The token names another issuer" + nearly + ".", Got: got,
			Want:   x.Issuer,
			Remedy: "Publish and trust the issuer exactly as the token names it, or correct --service-account-issuer of the API server."})
	}
}

// reviewToken proves that the API server still accepts a token of the caller.
func (x *verifier) reviewToken(ctx context.Context) {
	if x.Token == "" || x.kube == nil {
		return
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: x.Token,
		Audiences: x.claims.Audience}}
	if err := x.kube.Create(ctx, review); err != nil {
		x.skipped(CheckTokenReview, "the token could not be reviewed: "+kubeerror.Message(err, x.Token))
		return
	}
	x.check(review.Status.Authenticated,
		Check{Name: CheckTokenReview, Problem: "The API server does not accept the token.", Got: "not authenticated",
			Want:   "authenticated",
			Remedy: "Name its issuer with a further --service-account-issuer, and its key with a further --service-account-key-file."})
}

// checkLifetime asks for a longer token, because a key is unpublished when the
// longest token that it signed has expired.
func (x *verifier) checkLifetime(ctx context.Context) {
	if x.kube == nil {
		return
	}
	limit := cmp.Or(x.MaxTokenLifetime, defaultLifetime)
	token, err := x.requestToken(ctx, limit+probeLifetime)
	if err != nil {
		x.skipped(CheckTokenLifetime, x.notRequested(err))
		return
	}
	claims, err := jwt.Parse(token)
	if err != nil {
		x.skipped(CheckTokenLifetime, "the API server's token is malformed: "+err.Error())
		return
	}
	granted := claims.Expiry.Sub(claims.IssuedAt.Time)
	x.check(granted <= limit,
		Check{Name: CheckTokenLifetime, Problem: "The API server issues tokens that outlive their key's publication.",
			Got: fmt.Sprintf("a token for %s", granted), Want: fmt.Sprintf("--service-account-max-token-expiration=%s", limit),
			Remedy: "Set --service-account-max-token-expiration of the API server, or a longer maximum for this check and for the publisher."})
}

// Failed returns the checks that failed, without warnings.
func Failed(checks []Check) []Check {
	return slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return !c.Failed() || c.Warning })
}
