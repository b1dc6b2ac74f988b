package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/transport"
)

const discoveryTimeout = 15 * time.Second

// checkDiscovery does the same as a joining machine.
func (e *examination) checkDiscovery(ctx context.Context) doctor.Finding {
	if e.served == nil || !e.isWhole || len(e.pins) == 0 && !e.WithoutPins {
		return doctor.Skipped("A discovery takes the whole token, and a pin or the option to do without.")
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithTimeout(discoveryTimeout), bootstrap.WithServerName(e.ServerName), bootstrap.WithoutPins()}
	if len(e.pins) > 0 {
		opts[len(opts)-1] = bootstrap.WithPins(e.pins)
	}
	info, err := bootstrap.Discover(ctx, []string{e.Server}, e.token, opts...)
	again := doctor.Do("Try again. If it stays, do not join: an attacker is in between.")
	switch {
	case errors.Is(err, bootstrap.ErrSignature), errors.Is(err, bootstrap.ErrPins):
		return doctor.Failed("ContentDiffers", again, "The discovery is refused: %s.", err)
	case err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "The discovery did not finish: %s.", err)
	}
	e.discovered = info
	return doctor.Passed("The discovery works; the cluster is at %s.", info.Server)
}

// checkLogin sends the token over a connection that trusts what was discovered.
func (e *examination) checkLogin(ctx context.Context) doctor.Finding {
	if e.discovered == nil {
		if f, found := e.cannotLogIn(); found {
			return f.As(doctor.Warn) // the token may be meant for discovery alone
		}
		return doctor.Skipped("Nothing was discovered, so the login was not tried.")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.discovered.TLSServerName}
	if authorities, err := e.discovered.Certificates(); err == nil && len(authorities) > 0 {
		config.RootCAs = x509.NewCertPool()
		for _, c := range authorities {
			config.RootCAs.AddCert(c)
		}
	}
	const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	status, body, err := e.ask(ctx, config, http.MethodPost, strings.TrimSuffix(e.discovered.Server, "/")+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
		e.token.Reveal(), review)
	if err != nil {
		return doctor.Failed("AddressUnusable", doctor.Do("Publish an address that this machine reaches and that the server's certificate names:", "wid bootstrap publish --server HOST:PORT"),
			"cluster-info names an address that does not work from here: %s.", transport.Message(err)).
			Compare("cluster-info", e.discovered.Server, "works", e.url)
	}
	f := e.judgeLogin(status, body)
	f.StatusCode = status
	return f
}

// cannotLogIn judges the Secret, if it was read.
func (e *examination) cannotLogIn() (doctor.Finding, bool) {
	switch {
	case e.stored == nil:
	case !e.stored.Allows(bootstrap.UsageAuthentication):
		return doctor.Failed("TokenMayNotLogIn", newToken(), "The token may sign, but not log in, so a machine cannot join with it.").
			Compare("usages", strings.Join(e.stored.Usages, ", "), "needed", bootstrap.UsageAuthentication), true
	case e.stored.MalformedGroups:
		return doctor.Failed("TokenMayNotLogIn", newToken(), "The token authenticates no user, since one of its groups does not begin with system:bootstrappers:."), true
	}
	return doctor.Finding{}, false
}

func (e *examination) judgeLogin(status int, body []byte) doctor.Finding {
	var review authenticationv1.SelfSubjectReview
	switch {
	case status == http.StatusUnauthorized:
		if f, found := e.cannotLogIn(); found {
			return f
		}
		f := doctor.Failed("LoginRefused", newToken(), "The token signs, but does not log in.")
		f.Causes = []string{"the token lacks the usage authentication, or a valid group", "it has expired or was deleted a moment ago",
			"the API server runs without --enable-bootstrap-token-auth"}
		return f
	case status == http.StatusForbidden:
		return doctor.Passed("The token logs in.")
	case status != http.StatusCreated && status != http.StatusOK || json.Unmarshal(body, &review) != nil:
		return doctor.Unclear(doctor.Do("Try again."), "The API server answers the login with HTTP %d.", status)
	}
	return doctor.Passed("The token logs in as %s.", review.Status.UserInfo.Username).Detail("groups", strings.Join(review.Status.UserInfo.Groups, ", "))
}
