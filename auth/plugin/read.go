package plugin

import (
	"context"
	"errors"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/jwt"
)

const self = provider.Name("")

// read reads a request with a function of package input.
func read(ctx context.Context, in io.Reader, from func(context.Context, io.Reader) ([]byte, error)) ([]byte, error) {
	content, err := from(ctx, in)
	var e *input.Error
	if errors.As(err, &e) {
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Message: e.Message, Remedy: e.Remedy, Err: e.Err}
	}
	return content, err
}

// ServiceAccountOf returns the ServiceAccount of a token, for
// [auth.WithSubjectToken]. Name, namespace and UID are unverified claims: the
// receiver of the token verifies them. The annotations come from the caller.
// They select the identity to request and grant nothing.
func ServiceAccountOf(token string, annotations map[string]string) (corev1.ServiceAccount, error) {
	const remedy = "pass a token of a ServiceAccount"
	claims, err := jwt.Parse(strings.TrimSpace(token))
	if err != nil {
		return corev1.ServiceAccount{}, self.Misconfigured(remedy, "the token cannot be used: %v", err)
	}
	rest, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	namespace, name, found := strings.Cut(rest, ":")
	if !ok || !found || namespace == "" || name == "" || strings.Contains(name, ":") {
		return corev1.ServiceAccount{},
			self.Misconfigured(remedy, "the token's subject %.300q is no ServiceAccount", claims.Subject)
	}
	return corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(claims.Kubernetes.ServiceAccount.UID), Annotations: annotations}}, nil
}
