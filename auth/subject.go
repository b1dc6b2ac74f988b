package auth

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// SubjectTokenSource returns Kubernetes tokens of a ServiceAccount: subject
// tokens in the words of RFC 8693. Implementations are safe for concurrent use
// and honour the context.
//
// Token returns a JWT with exactly the given audiences and the time at which it
// expires; for the zero time the claim exp counts. The library checks its
// audience, subject and expiry before sending it anywhere.
//
// A source passed with [WithSubjectToken] is asked on every call, also when the
// credential is cached, because only the token proves the caller's identity. An
// expired token is refused, whatever is cached. The source should return the
// same token while that is fresh, since a new one means a new exchange.
type SubjectTokenSource interface {
	Token(ctx context.Context, audiences []string) (jwt string, expiry time.Time, err error)
}

// NewStaticTokenSource returns a source for a token that the caller already
// holds.
func NewStaticTokenSource(token string) SubjectTokenSource {
	return staticTokenSource{redact.New(strings.TrimSpace(token))}
}

type staticTokenSource struct{ token redact.Secret }

func (s staticTokenSource) Token(context.Context, []string) (string, time.Time, error) {
	token := s.token.Reveal()
	if token == "" {
		return "", time.Time{}, misconfigured("pass the ServiceAccount's token", "the subject token is empty")
	}
	claims, err := parseClaims(token)
	if err != nil {
		return "", time.Time{}, err
	}
	return token, claims.Expiry.Time, nil
}

// NewFileTokenSource returns a source that reads a token from a file, such as a
// projected volume, on each use: the kubelet replaces it long before it
// expires.
func NewFileTokenSource(path string) SubjectTokenSource { return fileTokenSource{path} }

type fileTokenSource struct{ path string }

func (s fileTokenSource) Token(ctx context.Context, audiences []string) (string, time.Time, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return "", time.Time{}, s.unreadable(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, jwt.MaxSize+1))
	if err != nil {
		return "", time.Time{}, s.unreadable(err)
	}
	if len(content) > jwt.MaxSize {
		return "", time.Time{}, misconfigured("name the file of a projected ServiceAccount token",
			"the token file %q is larger than %d bytes", s.path, jwt.MaxSize)
	}
	token, expiry, err := NewStaticTokenSource(string(content)).Token(ctx, audiences)
	if err != nil {
		return "", time.Time{}, misconfigured("name the file of a projected ServiceAccount token",
			"the token file %q holds no usable token: %v", s.path, err)
	}
	return token, expiry, nil
}

func (s fileTokenSource) unreadable(err error) error {
	e := misconfigured("mount the projected token, and set fsGroup if the file belongs to another user",
		"cannot read the token file %q: %v", s.path, err)
	e.Err = err
	if errors.Is(err, fs.ErrPermission) {
		e.Cause = provider.CauseTokenFileForbidden
	}
	return e
}
