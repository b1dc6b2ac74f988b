package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/providers"
)

// maxRequest bounds a request, in bytes. The largest hold a token and annotations, which Kubernetes bounds at 256 KiB.
const maxRequest = 512 << 10

const self = providers.Name("")

// Read reads in to its end, within the size of a request. It returns when the context expires. The reading goroutine then
// continues until in is closed, so use Read for standard input and similar sources.
func Read(ctx context.Context, in io.Reader) ([]byte, error) {
	return read(ctx, in, func(in io.Reader) ([]byte, error) { return io.ReadAll(in) })
}

// readLines is Read up to an empty line. It does not wait for further input.
func readLines(ctx context.Context, in io.Reader) ([]byte, error) {
	return read(ctx, in, func(in io.Reader) ([]byte, error) {
		var content []byte
		for lines := bufio.NewReader(in); ; {
			line, err := lines.ReadBytes('\n')
			content = append(content, line...)
			switch {
			case errors.Is(err, io.EOF), err == nil && len(bytes.TrimRight(line, "\r\n")) == 0:
				return content, nil
			case err != nil:
				return nil, err
			}
		}
	})
}

func read(ctx context.Context, in io.Reader, take func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		content []byte
		err     error
	}
	done := make(chan result, 1)
	go func() {
		content, err := take(io.LimitReader(in, maxRequest+1))
		done <- result{content, err}
	}()
	select {
	case r := <-done:
		switch {
		case r.err != nil:
			return nil, self.Misconfigured("pass the request on standard input", "the request cannot be read: %v", r.err)
		case len(r.content) > maxRequest:
			return nil, self.Misconfigured("pass one request on standard input", "the request has more than %d bytes", maxRequest)
		}
		return r.content, nil
	case <-ctx.Done():
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: ctx.Err(),
			Message: "the request on standard input does not end", Remedy: "close standard input after the request"}
	}
}

// ServiceAccountOf returns the ServiceAccount of a token, for auth.WithSubjectToken. Name, namespace and UID are unverified
// claims, which the receiver of the token verifies. The annotations are the caller's. They select the identity to request and
// grant nothing.
func ServiceAccountOf(token string, annotations map[string]string) (corev1.ServiceAccount, error) {
	const remedy = "pass a token of a ServiceAccount"
	claims, err := jwt.Parse(strings.TrimSpace(token))
	if err != nil {
		return corev1.ServiceAccount{}, self.Misconfigured(remedy, "the token cannot be used: %v", err)
	}
	rest, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	namespace, name, found := strings.Cut(rest, ":")
	if !ok || !found || namespace == "" || name == "" || strings.Contains(name, ":") {
		return corev1.ServiceAccount{}, self.Misconfigured(remedy, "the token's subject %.300q is no ServiceAccount", claims.Subject)
	}
	return corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(claims.Kubernetes.ServiceAccount.UID), Annotations: annotations}}, nil
}
