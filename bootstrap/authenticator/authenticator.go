package authenticator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authn "k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

// Authenticator authenticates bootstrap tokens with the usage "authentication".
// It is safe for concurrent use.
type Authenticator struct {
	reader client.Reader
	// Failed receives the reason of a failed lookup in Handler, never the
	// token. It may run on several goroutines at once. The client only learns
	// that the lookup failed. Nil drops the reason.
	Failed func(error)
}

// New returns an [Authenticator] that reads Secrets in kube-system. The reader
// needs the verb get there.
func New(reader client.Reader) *Authenticator { return &Authenticator{reader: reader} }

var _ authn.Token = (*Authenticator)(nil)

// AuthenticateToken returns the user system:bootstrap:<token ID>, in the group
// system:bootstrappers and the token's own groups. For an invalid token ok is
// false, without a reason that would help an attacker. An error means that the
// Secret could not be read, and never holds the token.
func (a *Authenticator) AuthenticateToken(ctx context.Context,
	token string) (response *authn.Response, ok bool, err error) {
	t, err := bootstrap.ParseToken(token)
	if err != nil {
		return nil, false, nil //nolint:nilerr // another kind of token
	}
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: bootstrapapi.BootstrapTokenSecretPrefix + t.ID()}
	if err := a.reader.Get(ctx, key, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("read secret %q: %w", key, err)
	}
	if secret.DeletionTimestamp != nil {
		return nil, false, nil
	}
	c, err := bootstrap.ParseSecret(&secret)
	if err != nil || !c.Token.Equal(t) || c.MalformedGroups || c.Expired(time.Now()) ||
		!c.Allows(bootstrap.UsageAuthentication) {
		return nil, false, nil //nolint:nilerr // Kubernetes ignores such a Secret too
	}
	return &authn.Response{User: &user.DefaultInfo{Name: c.User(),
		Groups: append([]string{bootstrapapi.BootstrapDefaultGroup}, c.Groups...)}}, true, nil
}

const maxReview = 1 << 20

// Handler answers TokenReviews (authentication.k8s.io/v1) for the API server's
// webhook token authentication. Its answers name no audiences, so the API
// server accepts the token for itself only. See the package comment about
// access to it.
func (a *Authenticator) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "POST a TokenReview", http.StatusMethodNotAllowed)
			return
		}
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review); err != nil ||
			review.Kind != "TokenReview" || review.APIVersion != authenticationv1.SchemeGroupVersion.String() {
			http.Error(w, "the body is not a TokenReview of "+authenticationv1.SchemeGroupVersion.String(),
				http.StatusBadRequest)
			return
		}
		review.Status = a.review(r.Context(), review.Spec.Token)
		review.Spec = authenticationv1.TokenReviewSpec{} // the answer does not repeat the token
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the client may be gone
	})
}

func (a *Authenticator) review(ctx context.Context, token string) authenticationv1.TokenReviewStatus {
	response, ok, err := a.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		if a.Failed != nil {
			a.Failed(err)
		}
		return authenticationv1.TokenReviewStatus{Error: "the token cannot be looked up now"}
	case !ok:
		return authenticationv1.TokenReviewStatus{}
	}
	return authenticationv1.TokenReviewStatus{Authenticated: true,
		User: authenticationv1.UserInfo{Username: response.User.GetName(), Groups: response.User.GetGroups()}}
}
