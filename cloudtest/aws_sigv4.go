package cloudtest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	sigAlgorithm = "AWS4-HMAC-SHA256"
	sigDate      = "20060102T150405Z"
	sigSkew      = 15 * time.Minute
)

// signature holds the parts of a signature, from the Authorization header or
// from the query.
type signature struct {
	credential, signedHeaders, value string
	date, sessionToken               string
	expires                          time.Duration
	presigned                        bool
}

// signedRequest is a request with the service and region that its signature
// must name.
type signedRequest struct {
	*http.Request
	body            []byte
	service, region string // an empty region stands for any
}

// authenticate verifies the request's signature (AWS Signature Version 4) and
// returns its key. Errors have the codes of the query protocol.
func (a *AWS) authenticate(r signedRequest) (accessKey, *awsError) {
	forbidden := func(code, format string, args ...any) (accessKey, *awsError) {
		return accessKey{}, refuse(http.StatusForbidden, code, format, args...)
	}
	sig, ok := readSignature(r.Request)
	if !ok {
		return forbidden("MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	scope := strings.Split(sig.credential, "/")
	if e := r.checkScope(scope); e != nil {
		return accessKey{}, e
	}
	key, known := a.key(scope[0])
	if !known || subtle.ConstantTimeCompare([]byte(key.sessionToken), []byte(sig.sessionToken)) != 1 {
		return forbidden("InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	now := a.cloud.time()
	if !key.Expiration.IsZero() && !now.Before(key.Expiration) {
		return forbidden("ExpiredToken", "The security token included in the request is expired")
	}
	date, err := time.Parse(sigDate, sig.date)
	if err != nil || !strings.HasPrefix(sig.date, scope[1]) {
		return forbidden("IncompleteSignature", "Date must be in ISO-8601 'basic format'. Got '%s'.", sig.date)
	}
	if e := checkDate(date, now, sig); e != nil {
		return accessKey{}, e
	}
	if want := r.sign(sig, key.secret, scope); subtle.ConstantTimeCompare([]byte(want), []byte(sig.value)) != 1 {
		return forbidden("SignatureDoesNotMatch",
			"The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.")
	}
	return key, nil
}

// VerifySignature returns the caller of a request that is signed for a service
// and a region (AWS Signature Version 4), for handlers that imitate further
// services of AWS, see [Cloud.Handle]. The body can be read again afterwards.
func (a *AWS) VerifySignature(r *http.Request, service, region string) (Identity, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return Identity{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	key, refused := a.authenticate(signedRequest{r, body, service, region})
	if refused != nil {
		return Identity{}, refused
	}
	return key.Identity, nil
}

func (r signedRequest) checkScope(scope []string) *awsError {
	wrong := func(code, format string, args ...any) *awsError {
		return refuse(http.StatusForbidden, code, format, args...)
	}
	switch {
	case len(scope) != 5 || scope[4] != "aws4_request":
		return wrong("IncompleteSignature",
			"Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term")
	case scope[3] != r.service:
		return wrong("SignatureDoesNotMatch", "Credential should be scoped to correct service: '%s'. ", r.service)
	case r.region != "" && scope[2] != r.region:
		return wrong("SignatureDoesNotMatch", "Credential should be scoped to a valid region, not '%s'. ", scope[2])
	}
	return nil
}

func checkDate(date, now time.Time, sig signature) *awsError {
	lifetime := sigSkew
	if sig.presigned {
		lifetime = sig.expires
	}
	format := func(t time.Time) string { return t.UTC().Format(sigDate) }
	switch {
	case now.After(date.Add(lifetime)):
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"Signature expired: %s is now earlier than %s (%s - %d min.)",
			format(date), format(now.Add(-lifetime)), format(now), int(lifetime/time.Minute))
	case date.After(now.Add(sigSkew)):
		return refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"Signature not yet current: %s is still later than %s (%s + %d min.)",
			format(date), format(now.Add(sigSkew)), format(now), int(sigSkew/time.Minute))
	}
	return nil
}

func readSignature(r *http.Request) (signature, bool) {
	if q := r.URL.Query(); q.Get("X-Amz-Algorithm") == sigAlgorithm {
		seconds, err := int(sigSkew/time.Second), error(nil)
		if text := q.Get("X-Amz-Expires"); text != "" {
			seconds, err = strconv.Atoi(text)
		}
		return signature{credential: q.Get("X-Amz-Credential"), signedHeaders: q.Get("X-Amz-SignedHeaders"),
			value: q.Get("X-Amz-Signature"), date: q.Get("X-Amz-Date"), sessionToken: q.Get("X-Amz-Security-Token"),
			expires: time.Duration(seconds) * time.Second, presigned: true}, err == nil && seconds >= 0
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), sigAlgorithm+" ")
	if !ok {
		return signature{}, false
	}
	sig := signature{date: r.Header.Get("X-Amz-Date"), sessionToken: r.Header.Get("X-Amz-Security-Token")}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			sig.credential = value
		case "SignedHeaders":
			sig.signedHeaders = value
		case "Signature":
			sig.value = value
		}
	}
	return sig, slices.Contains(strings.Split(sig.signedHeaders, ";"), "host")
}

// sign computes the correct signature of the request.
func (r signedRequest) sign(sig signature, secret string, scope []string) string {
	canonical := strings.Join([]string{
		r.Method,
		r.canonicalPath(),
		canonicalQuery(r.URL.Query()),
		canonicalHeaders(r.Request, sig.signedHeaders),
		sig.signedHeaders,
		r.payloadHash(),
	}, "\n")
	return signText(canonical, sig.date, secret, scope[1:])
}

// payloadHash returns the hash of the body. S3 also accepts requests over TLS
// that leave it out.
func (r signedRequest) payloadHash() string {
	const unsigned = "UNSIGNED-PAYLOAD"
	if r.service == "s3" && r.TLS != nil && r.Header.Get("X-Amz-Content-Sha256") == unsigned {
		return unsigned
	}
	return hexSum(r.body)
}

// signText signs a canonical request. The scope is date, region, service and
// aws4_request.
func signText(canonical, date, secret string, scope []string) string {
	toSign := strings.Join([]string{sigAlgorithm, date, strings.Join(scope, "/"), hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range scope {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, toSign))
}

// canonicalPath encodes the path twice, as all services except S3 do.
func (r signedRequest) canonicalPath() string {
	p := r.URL.EscapedPath()
	switch {
	case p == "":
		return "/"
	case r.service == "s3":
		return p
	}
	var b strings.Builder
	for i := range len(p) {
		switch c := p[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func canonicalQuery(q url.Values) string {
	q.Del("X-Amz-Signature")
	// Encode sorts by name; a blank is %20 here.
	return strings.ReplaceAll(q.Encode(), "+", "%20")
}

func canonicalHeaders(r *http.Request, signed string) string {
	var b strings.Builder
	for name := range strings.SplitSeq(signed, ";") {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	return b.String()
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, data string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(data))
	return h.Sum(nil)
}
