package identity_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth/authtest"
)

var errNowhere = errors.New("no route to host")

var errNodeAudience = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "app",
	errors.New(`audience "sts.amazonaws.com" not found in pod spec volume, system:node:n is not authorized to request tokens for this audience`))

func decodeHeader(token string, into any) {
	part, _, _ := strings.Cut(token, ".")
	content, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		panic(err)
	}
}

// answer has a service refuse.
func answer(service, action string, status int, code, message string) func(w *environment) {
	return func(w *environment) {
		w.cloud.AddFault(authtest.Fault{Service: service, Action: action, Status: status, Code: code, Message: message})
	}
}

// annotate changes the ServiceAccount's annotations. An empty value removes one.
func annotate(pairs ...string) func(w *environment) {
	return func(w *environment) {
		for i := 0; i < len(pairs); i += 2 {
			if w.account.Annotations[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(w.account.Annotations, pairs[i])
			}
		}
	}
}
