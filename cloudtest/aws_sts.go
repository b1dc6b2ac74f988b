package cloudtest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	stsVersion   = "2011-06-15"
	stsNamespace = "https://sts.amazonaws.com/doc/2011-06-15/"
	maxRequest   = 256 << 10
)

// awsError is an error of a query API.
type awsError struct {
	status        int
	code, message string
}

func (e *awsError) Error() string { return e.code + ": " + e.message }

func refuse(status int, code, format string, args ...any) *awsError {
	return &awsError{status, code, fmt.Sprintf(format, args...)}
}

// stsCall is one request to STS.
type stsCall struct {
	aws  *AWS
	w    http.ResponseWriter
	r    *http.Request
	form url.Values
	body []byte
	host string
	id   string // of the request, once it is known
	// namespace is the XML namespace of the answers.
	namespace string
}

func (a *AWS) serveSTS(w http.ResponseWriter, r *http.Request, host string) {
	s := &stsCall{aws: a, w: w, r: r, host: host, namespace: stsNamespace}
	err := s.read()
	call := Call{Service: "sts", Action: s.form.Get("Action"), Host: host, Parameters: s.parameters()}
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { s.fail(nil, &awsError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	if err != nil {
		s.fail(fault, err)
		return
	}
	result, err := s.handle()
	if err != nil {
		s.fail(fault, err)
		return
	}
	s.send(fault, http.StatusOK, element(call.Action+"Response", "",
		result, element("ResponseMetadata", "", element("RequestId", s.requestID()))))
}

// read reads the parameters from the body of a POST and from the URL of a GET,
// as STS does.
func (s *stsCall) read() *awsError {
	switch s.r.Method {
	case http.MethodGet:
		s.form = s.r.URL.Query()
	case http.MethodPost:
		body, ok := readBody(s.w, s.r)
		if !ok {
			return refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "Request is too large.")
		}
		s.body = body
		var err error
		if s.form, err = url.ParseQuery(string(body)); err != nil {
			return refuse(http.StatusBadRequest, "MalformedQueryString", "The query string is malformed.")
		}
	default:
		return refuse(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The HTTP verb is not supported.")
	}
	return nil
}

// readBody returns false for a request that is too large. A truncated request
// gets no answer, because the stream is reset (RFC 9113, section 8.1.1).
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil && !errors.As(err, new(*http.MaxBytesError)) {
		panic(http.ErrAbortHandler)
	}
	return body, err == nil
}

// parameters leaves out secrets and signatures.
func (s *stsCall) parameters() map[string]string {
	m := map[string]string{}
	for name := range s.form {
		if name != "WebIdentityToken" && !strings.HasPrefix(name, "X-Amz-") {
			m[name] = s.form.Get(name)
		}
	}
	return m
}

func (s *stsCall) handle() (node, *awsError) {
	if v := s.form.Get("Version"); v != stsVersion {
		return node{}, refuse(http.StatusBadRequest, "NoSuchVersion", "The requested version ( %s ) is not valid.", v)
	}
	switch action := s.form.Get("Action"); action {
	case "AssumeRoleWithWebIdentity":
		return s.assumeRoleWithWebIdentity()
	case "AssumeRole":
		return s.assumeRole()
	case "GetWebIdentityToken":
		return s.getWebIdentityToken()
	case "GetCallerIdentity":
		return s.getCallerIdentity()
	default:
		return node{}, refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation %s for version %s", action,
			stsVersion)
	}
}

func (s *stsCall) assumeRoleWithWebIdentity() (node, *awsError) {
	if err := s.validate("RoleArn", "RoleSessionName", "WebIdentityToken"); err != nil {
		return node{}, err
	}
	arn := s.form.Get("RoleArn")
	account := strings.SplitN(arn, ":", 6)[4]
	claims, err := s.verifyToken(account)
	if err != nil {
		return node{}, err
	}
	denied := refuse(http.StatusForbidden, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	target, ok := s.aws.assumable(arn)
	if asked := webIdentity(arn, claims); !ok || target.trust.decide(asked) != allowedByName {
		return node{}, denied
	}
	lifetime, err := s.lifetime(target.maxSession)
	if err != nil {
		return node{}, err
	}
	other := s.aws.isOtherSTS(s.host)
	if other && !s.form.Has("DurationSeconds") {
		lifetime = claims.Expiry.Time().Sub(s.aws.cloud.time())
	}
	k := s.aws.newSession(Identity{RoleARN: arn, SessionName: s.form.Get("RoleSessionName"), Subject: claims.Subject},
		target, lifetime)
	if other {
		return element("AssumeRoleWithWebIdentityResult", "",
			element("AssumedRoleUser", "", element("Arn", ""), element("AssumeRoleId", "")),
			credentials(k),
			element("SubjectFromWebIdentityToken", claims.Subject)), nil
	}
	return element("AssumeRoleWithWebIdentityResult", "",
		element("Audience", claims.Audience[0]),
		assumedRoleUser(k),
		element("Provider", fmt.Sprintf("arn:aws:iam::%s:oidc-provider/%s", account,
			strings.TrimPrefix(claims.Issuer, "https://"))),
		credentials(k),
		element("SubjectFromWebIdentityToken", claims.Subject)), nil
}

// webIdentity returns the access that a token's owner asks for. The OIDC
// provider is in the account of the role.
func webIdentity(roleARN string, claims tokenClaims) access {
	host := strings.TrimPrefix(claims.Issuer, "https://")
	parts, key := strings.SplitN(roleARN, ":", 6), strings.ToLower(host)
	return access{action: "sts:AssumeRoleWithWebIdentity", resource: roleARN, kind: "Federated",
		names:   []string{"arn:" + parts[1] + ":iam::" + parts[4] + ":oidc-provider/" + host},
		context: map[string][]string{key + ":sub": {claims.Subject}, key + ":aud": claims.Audience}}
}

// verifyToken returns STS's answer to each fault of a token.
func (s *stsCall) verifyToken(account string) (tokenClaims, *awsError) {
	invalid := func(format string, args ...any) *awsError {
		return refuse(http.StatusBadRequest, "InvalidIdentityToken", format, args...)
	}
	token, claims, err := readToken(s.form.Get("WebIdentityToken"))
	if err != nil {
		return claims,
			invalid("The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	}
	provider := s.aws.provider(account, claims.Issuer)
	if provider == nil || isOutboundHost(claims.Issuer) {
		return claims, invalid("No OpenIDConnect provider found in your account for %s", claims.Issuer)
	}
	switch err := provider.verify(s.r.Context(), token); {
	case errors.Is(err, errSignature):
		return claims, invalid("The web identity token provided could not be validated")
	case err != nil:
		return claims,
			invalid(
				"Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements")
	}
	now := s.aws.cloud.time()
	switch {
	case len(claims.Audience) == 0:
		return claims, invalid("Missing a required claim: aud")
	case claims.Expiry == nil:
		return claims, invalid("Missing a required claim: exp")
	case !now.Before(claims.Expiry.Time()):
		return claims, refuse(http.StatusBadRequest, "ExpiredTokenException",
			"Token expired: current date/time %d must be before the expiration date/time %d", now.Unix(),
			claims.Expiry.Time().Unix())
	case !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(provider.clientIDs, a) }):
		return claims, invalid("Incorrect token audience")
	}
	return claims, nil
}

func (s *stsCall) assumeRole() (node, *awsError) {
	caller, err := s.authenticate()
	if err != nil {
		return node{}, err
	}
	if err := s.validate("RoleArn", "RoleSessionName"); err != nil {
		return node{}, err
	}
	identity, err := s.sessionParameters()
	if err != nil {
		return node{}, err
	}
	arn := s.form.Get("RoleArn")
	target, ok := s.aws.assumable(arn)
	if !ok {
		return node{}, notAuthorized(caller, "sts:AssumeRole", arn)
	}
	if action := s.refuses(caller, target, identity); action != "" {
		return node{}, notAuthorized(caller, action, arn)
	}
	if !identity.inherit(caller.Identity) {
		return node{}, notAuthorized(caller, "sts:SetSourceIdentity", arn)
	}
	if caller.RoleARN != "" {
		target.maxSession = time.Hour // role chaining
	}
	lifetime, err := s.lifetime(target.maxSession)
	if err != nil {
		return node{}, err
	}
	identity.RoleARN, identity.SessionName = arn, s.form.Get("RoleSessionName")
	k := s.aws.newSession(identity, target, lifetime)
	result := []node{assumedRoleUser(k), credentials(k)}
	if k.SourceIdentity != "" {
		result = append(result, element("SourceIdentity", k.SourceIdentity))
	}
	return element("AssumeRoleResult", "", result...), nil
}

// authenticate requires signatures for the region of the endpoint.
func (s *stsCall) authenticate() (accessKey, *awsError) {
	return s.aws.authenticate(signedRequest{s.r, s.body, "sts", awsname.STSRegion(s.host)})
}

func (s *stsCall) getCallerIdentity() (node, *awsError) {
	caller, err := s.authenticate()
	if err != nil {
		return node{}, err
	}
	return element("GetCallerIdentityResult", "", element("Arn", caller.ARN), element("UserId", caller.userID),
		element("Account", caller.account)), nil
}

func (s *stsCall) lifetime(longest time.Duration) (time.Duration, *awsError) {
	text := s.form.Get("DurationSeconds")
	if text == "" {
		return time.Hour, nil
	}
	seconds, _ := strconv.Atoi(text) // validate has checked it
	lifetime := time.Duration(seconds) * time.Second
	if lifetime > longest {
		return 0, refuse(http.StatusBadRequest, "ValidationError",
			"The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	return lifetime, nil
}

func assumedRoleUser(k *accessKey) node {
	return element("AssumedRoleUser", "", element("AssumedRoleId", k.userID), element("Arn", k.ARN))
}

func credentials(k *accessKey) node {
	return element("Credentials", "",
		element("AccessKeyId", k.id),
		element("SecretAccessKey", k.secret),
		element("SessionToken", k.sessionToken),
		element("Expiration", k.Expiration.Format(time.RFC3339)))
}

func (s *stsCall) fail(fault *Fault, err *awsError) {
	kind := "Sender"
	if err.status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	s.send(fault, err.status, element("ErrorResponse", "",
		element("Error", "", element("Type", kind), element("Code", err.code), element("Message", err.message)),
		element("RequestId", s.requestID())))
}

// send answers in XML, or in JSON if the request accepts JSON.
func (s *stsCall) send(fault *Fault, status int, document node) {
	h := s.w.Header()
	h.Set("Date", s.aws.cloud.time().UTC().Format(http.TimeFormat))
	body := []byte(document.xml(s.namespace))
	h.Set("Content-Type", "text/xml")
	if strings.Contains(s.r.Header.Get("Accept"), "application/json") {
		body = document.json()
		h.Set("Content-Type", "application/json")
	}
	if fault == nil || fault.Rewrite == nil {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	fault.send(s.w, s.r, s.aws.cloud.closing, status, body)
}

// requestID returns the same ID for the header and the body of one answer. STS
// spells the header in this way.
func (s *stsCall) requestID() string {
	if s.id == "" {
		s.id = uuid.NewString()
		s.w.Header()["x-amzn-RequestId"] = []string{s.id} //nolint:staticcheck // STS's own spelling
	}
	return s.id
}
