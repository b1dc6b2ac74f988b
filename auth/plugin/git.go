package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/input"
)

// GitRequest is git's request to a credential helper (gitcredentials(7),
// git-credential(1), "INPUT/OUTPUT FORMAT").
type GitRequest struct {
	// Protocol is the scheme of the repository's URL.
	Protocol string
	// Host includes the port, if the URL has one.
	Host string
	// Path has no leading slash. git sends it only if credential.useHttpPath is
	// set.
	Path string

	authtype bool // git also accepts credentials other than user name and password
}

// ReadGitRequest reads the request of get, store and erase, up to an empty line
// or the end of input. It ignores unknown attributes, as the protocol demands,
// and drops passwords.
func ReadGitRequest(ctx context.Context, in io.Reader) (*GitRequest, error) {
	content, err := read(ctx, in, input.ReadLines)
	if err != nil {
		return nil, err
	}
	r := &GitRequest{}
	for line := range strings.SplitSeq(string(content), "\n") {
		if line == "" {
			break
		}
		if strings.ContainsAny(line, "\r\x00") { // git itself never sends them since 2.48.1
			return nil, self.Misconfigured("use a URL without them", "a line of the request holds a carriage return or a NUL")
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, self.Misconfigured("have git call the helper", "a line of the request is not <key>=<value>")
		}
		if err := r.set(key, value); err != nil {
			return nil, err
		}
	}
	if r.Protocol == "" || r.Host == "" {
		return nil, self.Misconfigured("have git call the helper, or write protocol=https and host=<host> to standard input",
			"the request names no repository")
	}
	return r, nil
}

func (r *GitRequest) set(key, value string) error {
	switch key {
	case "protocol":
		r.Protocol = value
	case "host":
		r.Host = value
	case "path":
		r.Path = value
	case "capability[]":
		r.authtype = r.authtype || value == "authtype"
	case "url":
		u, err := url.Parse(value)
		if err != nil {
			return self.Misconfigured("have git call the helper", "the request's URL is malformed")
		}
		r.Protocol, r.Host, r.Path = u.Scheme, u.Host, strings.TrimPrefix(u.EscapedPath(), "/")
	}
	return nil
}

// URL returns the address of the repository, or of the host if git sent no
// path.
func (r *GitRequest) URL() (url.URL, error) {
	if strings.Contains(r.Host, "@") { // a password may precede it
		return url.URL{}, self.Misconfigured("use the repository's https:// URL", "the request's host holds a user name")
	}
	u, err := url.Parse(r.Protocol + "://" + r.Host + "/" + r.Path)
	if err != nil || u.Host != r.Host || u.User != nil {
		return url.URL{}, self.Misconfigured("use the repository's https:// URL",
			"protocol %.20q and host %.300q are not those of a URL", r.Protocol, r.Host)
	}
	return *u, nil
}

// GitCredential is the answer of a helper: a user name and a password, or a
// bearer token.
type GitCredential struct {
	Username, Password string
	BearerToken        string
	// Expires is the expiry. Zero: never.
	Expires time.Time
}

// gitBearerUser accompanies a bearer token that is sent as a password. Azure
// DevOps, the only server with bearer tokens, accepts any name.
const gitBearerUser = "oauth2"

// Encode returns the answer to get. It contains the expiry, so a helper that
// stores credentials drops it in time. If git supports bearer tokens
// (capability authtype, git 2.46), Encode passes a bearer token as such,
// otherwise as a password.
func (r *GitRequest) Encode(c GitCredential) ([]byte, error) {
	var lines [][2]string
	switch {
	case c.BearerToken != "" && r.authtype:
		lines = [][2]string{{"capability[]", "authtype"}, {"authtype", "Bearer"}, {"credential", c.BearerToken},
			{"ephemeral", "1"}}
	case c.BearerToken != "":
		lines = [][2]string{{"username", gitBearerUser}, {"password", c.BearerToken}}
	case c.Password != "":
		lines = [][2]string{{"username", c.Username}, {"password", c.Password}}
	default:
		return nil, &auth.Error{Reason: auth.ErrUnavailable, Message: "there is no credential to hand out"}
	}
	if !c.Expires.IsZero() {
		lines = append(lines, [2]string{"password_expiry_utc", strconv.FormatInt(c.Expires.Unix(), 10)})
	}
	var b bytes.Buffer
	for _, line := range lines {
		// A further line would become a further attribute.
		if strings.ContainsAny(line[1], "\r\n\x00") {
			return nil, &auth.Error{Reason: auth.ErrUnavailable,
				Message: fmt.Sprintf("the %s cannot be passed to git: it holds control characters", line[0])}
		}
		_, _ = fmt.Fprintf(&b, "%s=%s\n", line[0], line[1]) // a buffer returns no error
	}
	return b.Bytes(), nil
}

// EncodeGitCapabilities returns the answer to the action capability (git 2.46).
func EncodeGitCapabilities() []byte { return []byte("version 0\ncapability authtype\n") }
