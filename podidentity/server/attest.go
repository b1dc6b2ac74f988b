package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/podidentity"
)

// pod is the identity that a token proves.
type pod struct {
	namespace, serviceAccount, name string
	uid                             types.UID
}

// maxToken bounds a token in bytes. Tokens of API servers have one or two
// thousand.
const maxToken = 16 << 10

// bearer returns the token of a request that has the documented form.
func bearer(r *http.Request) (string, error) {
	switch {
	case r.URL.Path != podidentity.Path:
		return "", &refusal{status: http.StatusNotFound, code: "NotFound", result: resultMalformed,
			message: "the only path is " + podidentity.Path}
	case r.Method != http.MethodPost:
		return "", &refusal{status: http.StatusMethodNotAllowed, code: "MethodNotAllowed", result: resultMalformed,
			message: "use POST"}
	case r.ContentLength != 0:
		return "", &refusal{status: http.StatusBadRequest, code: "BadRequest", result: resultMalformed,
			message: "send no body"}
	}
	header := r.Header.Values("Authorization")
	if len(header) != 1 {
		return "", notAttested("send one Authorization header, with the pod's token as bearer")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	// The API server would review only the part before a blank.
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken || strings.ContainsAny(token, " \t") {
		return "", notAttested(fmt.Sprintf("send the pod's token as bearer, in at most %d bytes", maxToken))
	}
	return token, nil
}

func notAttested(message string) error {
	return &refusal{status: http.StatusUnauthorized, code: codeNotAttested, result: codeNotAttested, message: message}
}

// fitForReview spares the API server tokens that it would refuse. Only the
// review proves a token's claims. A token with a further audience is refused,
// because the service of that audience could send it here.
func (s *Server) fitForReview(token string) error {
	claims, err := jwt.Parse(token)
	switch {
	case err != nil:
		return notAttested("the bearer is not a token of a ServiceAccount: " + err.Error())
	case len(claims.Audience) != 1 || claims.Audience[0] != s.options.Audience:
		return notAttested(fmt.Sprintf("the token does not have the audience %q alone", s.options.Audience))
	case !claims.Expiry.After(time.Now()):
		return notAttested("the token has expired: read it from the projected volume again")
	case claims.Kubernetes.Pod.UID == "":
		return notAttested(notBoundToPod)
	}
	return nil
}

const notBoundToPod = "the token is not bound to a pod: use a projected token"

// attest asks the API server which pod a token belongs to. It does not cache
// the answer: the API server caches it for ten seconds, and refuses the token
// after the pod is deleted.
func (s *Server) attest(ctx context.Context, token string) (pod, error) {
	if err := s.fitForReview(token); err != nil {
		return pod{}, err
	}
	leave, err := s.reviews.Take(ctx)
	if err != nil {
		return pod{}, throttled(0)
	}
	defer leave()
	start := time.Now()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token,
		Audiences: []string{s.options.Audience}}}
	err = s.options.Client.Create(ctx, review)
	s.metrics.reviewed(start, err)
	if err != nil {
		s.options.Logger.Error(err, "create TokenReview")
		return pod{}, unavailable("the API server reviews no tokens at the moment", 0)
	}
	// An API server that does not support audiences returns none, and
	// authenticates only for its own audience.
	if !review.Status.Authenticated || !slices.Contains(review.Status.Audiences, s.options.Audience) {
		return pod{}, notAttested(fmt.Sprintf("the API server refuses the token for the audience %q", s.options.Audience))
	}
	p, ok := podOf(&review.Status.User)
	if !ok {
		return pod{}, notAttested(notBoundToPod)
	}
	return p, nil
}

const serviceAccountPrefix = "system:serviceaccount:"

// podOf reads the user of a token that is bound to a pod.
func podOf(user *authenticationv1.UserInfo) (p pod, ok bool) {
	names, isServiceAccount := strings.CutPrefix(user.Username, serviceAccountPrefix)
	p.namespace, p.serviceAccount, _ = strings.Cut(names, ":")
	p.name = extra(user, "authentication.kubernetes.io/pod-name")
	p.uid = types.UID(extra(user, "authentication.kubernetes.io/pod-uid"))
	return p, isServiceAccount && p.namespace != "" && p.serviceAccount != "" && p.name != "" && p.uid != ""
}

func extra(user *authenticationv1.UserInfo, key string) string {
	if values := user.Extra[key]; len(values) == 1 {
		return values[0]
	}
	return ""
}
