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
)

// GitRequest is what git asks a credential helper (gitcredentials(7), git-credential(1), "INPUT/OUTPUT FORMAT").
type GitRequest struct {
	// Protocol is that of the repository's URL.
	Protocol string
	// Host has the port, if the URL has one.
	Host string
	// Path has no slash at its beginning. git sends it only if credential.useHttpPath is set.
	Path string

	authtype bool // git can send credentials of other kinds than user name and password
}

// ReadGitRequest reads the request of get, store and erase, up to an empty line or the end. Attributes that it does not
// know are ignored, as the protocol demands; passwords that git sends along are not kept.
func ReadGitRequest(ctx context.Context, in io.Reader) (*GitRequest, error) {
	content, err := readLines(ctx, in)
	if err != nil {
		return nil, err
	}
	r := &GitRequest{}
	for line := range strings.SplitSeq(string(content), "\n") {
		if line == "" {
			break
		}
		if strings.ContainsAny(line, "\r\x00") { // git itself sends none since 2.48.1
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

// URL returns the address of the repository, or of the host if git did not send the path.
func (r *GitRequest) URL() (url.URL, error) {
	if strings.Contains(r.Host, "@") { // a password may stand before it
		return url.URL{}, self.Misconfigured("use the repository's https:// URL", "the request's host holds a user name")
	}
	u, err := url.Parse(r.Protocol + "://" + r.Host + "/" + r.Path)
	if err != nil || u.Host != r.Host || u.User != nil {
		return url.URL{}, self.Misconfigured("use the repository's https:// URL",
			"protocol %.20q and host %.300q are not those of a URL", r.Protocol, r.Host)
	}
	return *u, nil
}

// GitCredential is what a helper hands to git: a user name and a password, or a bearer token.
type GitCredential struct {
	Username, Password string
	BearerToken        string
	// Expires is when it ends. Zero: it does not.
	Expires time.Time
}

// gitBearerUser goes with a bearer token that has to be sent as a password. Azure DevOps, the server that wants bearers,
// takes any name there.
const gitBearerUser = "oauth2"

// EncodeGitCredential returns the answer to get. git learns when the credential ends, so that a helper that stores
// credentials does not hand it out after that. A bearer token is passed as such if git can send it (capability authtype,
// git 2.46), and as a password otherwise.
func EncodeGitCredential(r *GitRequest, c GitCredential) ([]byte, error) {
	var lines [][2]string
	switch {
	case c.BearerToken != "" && r.authtype:
		lines = [][2]string{{"capability[]", "authtype"}, {"authtype", "Bearer"}, {"credential", c.BearerToken}, {"ephemeral", "1"}}
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
		// A line more would be an attribute more.
		if strings.ContainsAny(line[1], "\r\n\x00") {
			return nil, &auth.Error{Reason: auth.ErrUnavailable,
				Message: fmt.Sprintf("the %s cannot be passed to git: it holds control characters", line[0])}
		}
		_, _ = fmt.Fprintf(&b, "%s=%s\n", line[0], line[1]) // buffers take everything
	}
	return b.Bytes(), nil
}

// EncodeGitCapabilities returns the answer to the action capability (git 2.46).
func EncodeGitCapabilities() []byte { return []byte("version 0\ncapability authtype\n") }
