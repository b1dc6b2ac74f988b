package spiffe

import (
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"

	"github.com/workloadid/workloadid/auth"
)

// checkID refuses an ID that does not name a workload. An ID without a path is
// a trust domain (SPIFFE-ID, section 2).
func checkID(id spiffeid.ID) error {
	switch {
	case id.IsZero():
		return fail(auth.ErrDenied, "state one in the controller", "the controller states no SPIFFE ID")
	case id.Path() == "":
		return fail(auth.ErrMisconfigured, "add a path in the controller", "the SPIFFE ID %q is a trust domain", id)
	}
	return nil
}

// maxSVID is the largest size of a token in bytes. SPIRE's tokens have about
// one thousand.
const maxSVID = 16 << 10

// read parses a token of the agent.
func read(token string) (*jwtsvid.SVID, error) {
	if len(token) > maxSVID {
		return nil, unusable("the JWT-SVID is larger than %d bytes", maxSVID)
	}
	svid, err := jwtsvid.ParseInsecure(token, nil) // accept compares the audiences
	if err != nil {
		return nil, explain(err, remedyAgent)
	}
	return svid, nil
}

// accept returns the token and its expiry if the SVID is the one that the
// source asked for.
func (c *Config) accept(svid *jwtsvid.SVID, want spiffeid.ID, audiences []string) (string, time.Time, error) {
	if svid.ID != want {
		return "", time.Time{}, anotherID(svid.ID.String(), want)
	}
	if !sameSet(svid.Audience, audiences) {
		return "", time.Time{}, fail(auth.ErrDenied, remedyAgent, "the JWT-SVID has the audiences %.300q instead of %.300q",
			svid.Audience, audiences)
	}
	if err := c.checkIssuer(svid); err != nil {
		return "", time.Time{}, err
	}
	return svid.Marshal(), svid.Expiry, nil
}

func anotherID(got string, want spiffeid.ID) error {
	return fail(auth.ErrDenied, "correct the registration entry, or the SPIFFE ID that the controller states",
		"the JWT-SVID is for %.300q, not for %.300q", got, want)
}

func (c *Config) checkIssuer(svid *jwtsvid.SVID) error {
	const set = "set jwt_issuer in the configuration of the SPIRE server"
	issuer, _ := svid.Claims["iss"].(string)
	switch {
	case issuer == "" && c.AllowNoIssuer:
		return nil
	case issuer == "":
		return fail(auth.ErrMisconfigured, set+" to the issuer that the service trusts, or allow tokens without one",
			"the JWT-SVID of %.300q has no issuer", svid.ID).About(optionNoIssuer)
	case c.Issuer != "" && issuer != c.Issuer:
		return fail(auth.ErrDenied, set+", or correct the issuer here",
			"the JWT-SVID is of the issuer %.300q, not of %.300q", issuer, c.Issuer).About(optionIssuer)
	}
	return nil
}

// sameSet compares without order.
func sameSet(a, b []string) bool { return includes(a, b) && includes(b, a) }

func includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
