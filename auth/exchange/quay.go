package exchange

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// QuayRobotAnnotation names the robot account that a ServiceAccount acts as:
// <organization>+<robot>.
const QuayRobotAnnotation = annotationPrefix + "quay-robot"

// NewQuay returns a [Provider] for robot federation of Quay (quay.io, or the
// host of your own). The robot's federation has to know the cluster's issuer
// and the subject system:serviceaccount:<namespace>:<name>. Each ServiceAccount
// needs [QuayRobotAnnotation]. [auth.NewRegistryAuthenticator] and
// [auth.NewKeychain] serve the host with the robot's name and the issued token.
// The token lives for an hour.
func NewQuay(host string) *Provider {
	host = strings.ToLower(host) // as RegistryHost returns it
	return &Provider{
		Name: "quay", Endpoint: "https://" + host + "/oauth2/federation/robot/token", AssumedLifetime: time.Hour,
		AnnotatedParameters: map[string]string{"robot": QuayRobotAnnotation},
		service:             quay{tokenForm{newOwnForm("Quay", "robot")}, host},
	}
}

type quay struct {
	tokenForm
	host string
}

func (q quay) hosts() []string                        { return []string{q.host} }
func (quay) user(parameters map[string]string) string { return parameters["robot"] }

func (q quay) request(ctx context.Context, r *tokenRequest) (*http.Request, error) {
	robot := q.user(r.parameters)
	if robot == "" || strings.Contains(robot, ":") { // a colon would end the user name and name another robot
		return nil, self.Misconfigured("use <organization>+<robot>", "%.256q is not a robot account",
			robot).About(optionAnnotated)
	}
	req, err := getJSON(ctx, r.endpoint.String())
	if err == nil {
		req.SetBasicAuth(robot, r.SubjectToken)
		r.addSecrets(req.Header.Get("Authorization")[len("Basic "):])
	}
	return req, err
}
