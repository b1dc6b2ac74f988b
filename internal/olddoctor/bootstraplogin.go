package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// checkDiscover is what a machine that joins does.
func (b *bootstrapping) checkDiscover(ctx context.Context) Finding {
	switch {
	case b.served == nil:
		return skip("cluster-info was not read")
	case !b.whole:
		return skip("it takes the whole token")
	case len(b.pins) == 0 && !b.WithoutPins:
		return skip("it takes a pin, or the wish to do without")
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithTimeout(callTimeout), bootstrap.WithServerName(b.ServerName)}
	if len(b.pins) > 0 {
		opts = append(opts, bootstrap.WithPins(b.pins))
	} else {
		opts = append(opts, bootstrap.WithoutPins())
	}
	defer waiting(ctx, "the server "+hostOf(b.url))()
	info, err := bootstrap.Discover(ctx, []string{b.Server}, b.token, opts...)
	const again = "try again; if it stays, do not join: somebody is in between"
	switch {
	case errors.Is(err, bootstrap.ErrSignature):
		return fail("B15", again, "%s", shown(err.Error()))
	case errors.Is(err, bootstrap.ErrPins):
		return fail("B22", again, "%s", shown(err.Error()))
	case err != nil:
		return unknown(shown(err.Error()), "try again")
	}
	b.discovered = info
	return pass("the discovery works: the cluster is at %s", shown(info.Server)).with(same("server", info.Server))
}

// checkLogin sends the token where the TLS bootstrap would send it, over a connection that trusts what was discovered.
func (b *bootstrapping) checkLogin(ctx context.Context) Finding {
	if b.discovered == nil {
		return skip("nothing was discovered")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: b.discovered.TLSServerName}
	if authorities, err := b.discovered.Certificates(); err == nil && len(authorities) > 0 {
		config.RootCAs = x509.NewCertPool()
		for _, c := range authorities {
			config.RootCAs.AddCert(c)
		}
	}
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1",
		Kind: "SelfSubjectReview"}}
	content, err := json.Marshal(review)
	if err != nil {
		return unknown("the request cannot be made", "report this")
	}
	address := strings.TrimSuffix(b.discovered.Server, "/") + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	a, err := b.ask(ctx, config, http.MethodPost, address, b.token.Reveal(), content)
	if ctx.Err() != nil {
		return unknown("the server has not answered yet", "allow more time, a minute at most")
	}
	if err != nil {
		return fail("B33", "publish an address that this machine reaches and that the server's certificate names: wid bootstrap "+
			"publish --server",
			"cluster-info sends machines to an address that does not work from here: %s", transport.Message(err, b.token.Reveal())).
			with(differs("server", b.discovered.Server, "reachable, with a certificate of the cluster's authority"))
	}
	return b.judgeLogin(a.status, a.body)
}

func (b *bootstrapping) judgeLogin(status int, body []byte) Finding {
	answered := Field{Name: "status", Observed: fmt.Sprint(status), Expected: "201", Differs: true}
	want := bootstrap.UserPrefix + b.id
	var review authenticationv1.SelfSubjectReview
	switch {
	case status == http.StatusUnauthorized:
		f := fail("B30", newToken, "401: the token signs, but does not log in: the TLS bootstrap that follows gets the same").
			with(answered)
		f.Causes = []string{"the token lacks the usage authentication", "it has expired or was deleted a moment ago",
			"one of its groups does not begin with system:bootstrappers:",
			"the API server runs without --enable-bootstrap-token-auth"}
		return f
	case status == http.StatusForbidden:
		return pass("the token logs in; it may not ask as whom")
	case status != http.StatusCreated && status != http.StatusOK || json.Unmarshal(body, &review) != nil:
		return unknown(fmt.Sprintf("the API server answers %d", status), "try again")
	}
	user := redact.Text(review.Status.UserInfo.Username, b.token.Reveal())
	groups := redact.Text(audiences(redacted(review.Status.UserInfo.Groups, b.token.Reveal())))
	if user != want {
		return Finding{Result: Warn, Class: "B30", Remedy: "see the API server's authentication webhook and configuration",
			Message: "the token logs in as somebody else"}.with(differs("user", user, want))
	}
	return pass("the token logs in as %s", want).with(same("user", want),
		same("groups", groups))
}
