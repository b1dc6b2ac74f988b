package doctor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Check 24.
func (e *examination) checkCluster(ctx context.Context) Finding {
	if e.Cluster == "" && e.ClusterAddress == "" {
		return skip("no cluster was named")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer waiting(ctx, "the cluster "+shown(firstOf(e.Cluster, e.ClusterAddress)))()
	access, err := e.clusterAccess(ctx)
	if err != nil {
		f := e.refusal(ctx, err)
		if f.Class == "" && f.Result == Fail {
			f.Class = classOfCluster(e.Provider.GetName())
		}
		return f
	}
	if f, bad := e.checkEKSToken(access.BearerToken()); bad {
		return f
	}
	status, review, err := e.whoAmI(ctx, access)
	switch {
	case err != nil:
		return unknown("the cluster cannot be reached: "+transport.Message(err, e.secrets()...), "check address and certificate authority")
	case status == http.StatusCreated || status == http.StatusOK:
		return e.explainAccess(ctx, e.knownAs(ctx, access, status, review.Status.UserInfo.Username))
	case status == http.StatusUnauthorized:
		return e.explainAccess(ctx, e.stranger(ctx, status))
	case status == http.StatusForbidden:
		return Finding{Result: Warn, StatusCode: status, Message: "the cluster knows you, but does not say as whom",
			Remedy: "bind the ClusterRole system:basic-user to system:authenticated, as is the default"}
	}
	return unknown(fmt.Sprintf("the cluster answers %d", status), "try again")
}

// stranger explains a 401, which never says why.
func (e *examination) stranger(ctx context.Context, status int) Finding {
	f := fail("", "have the cluster accept tokens of "+e.cloud.name, "401: the token is well formed, but the cluster does not accept it")
	switch e.Provider.GetName() {
	case "aws":
		class, _ := classByID("A19")
		f.Class, f.Causes, f.Remedy = class.ID, class.Causes, e.filled(ctx, class.Remedy)
		f.Message = "401: the token is well formed, but the cluster does not know the role"
		f = e.widening(f, otherCluster)
	case "generic":
		class, _ := classByID("K6")
		f.Class, f.Causes = class.ID, class.Causes
		f.Remedy = "have the cluster trust issuer and audience of the token (AuthenticationConfiguration)"
	}
	f.StatusCode = status
	return f.with(differs("identity", firstOf(e.who(), "unknown"), "known to the cluster"))
}

// knownAs doubts answers that no API server gives: whatever answers 200 to everything, or repeats what it was sent.
func (e *examination) knownAs(ctx context.Context, access *auth.RESTConfig, status int, user string) Finding {
	f := unknown("", "see that the address is that of the cluster's API server")
	f.StatusCode = status
	switch {
	case user == "":
		f.Message = fmt.Sprintf("something answers %d without saying as whom it knows you: that is no API server, perhaps", status)
	case redact.Clean(user, e.known.all()...) != user:
		f.Message = "the answer repeats the credential instead of naming a user: that is no API server, perhaps"
	default:
		return e.mayAct(ctx, access, user)
	}
	return f
}

// mayAct tells a user whom Azure has given no role from one that may do something, as AKS words it.
func (e *examination) mayAct(ctx context.Context, access *auth.RESTConfig, user string) Finding {
	ok := pass("the cluster knows you as %s", shown(user)).with(same("user", user))
	if e.Provider.GetName() != "azure" {
		return ok
	}
	review := &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces"}}}
	_, err := e.post(ctx, access, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
	if err != nil || review.Status.Allowed || !strings.Contains(review.Status.Reason, "does not have access to the resource in Azure") {
		return ok
	}
	class, _ := classByID("Z18")
	f := fail(class.ID, e.filled(ctx, class.Remedy), "the cluster knows you as %s, but Azure RBAC denies", shown(user))
	return f.with(Field{Name: "list namespaces", Observed: e.text(review.Status.Reason), Expected: "allowed", Differs: true})
}

func (e *examination) who() string {
	if t, ok := e.gained.(interface{ AssumedRoleARN() string }); ok {
		return t.AssumedRoleARN()
	}
	return e.serviceAccount().Annotations[e.cloud.required]
}

func (e *examination) whoAmI(ctx context.Context, access *auth.RESTConfig) (int, *authenticationv1.SelfSubjectReview, error) {
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	status, err := e.post(ctx, access, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
	return status, review, err
}

// post creates a review at the cluster and reads the answer into it.
func (e *examination) post(ctx context.Context, access *auth.RESTConfig, path string, review any) (status int, err error) {
	client, err := e.pool.Client(e.resolved().ProxyURL, string(access.CAData()))
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(review)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(access.Host(), "/")+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+access.BearerToken())
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return 0, err
	}
	_ = json.Unmarshal(answer, review) // what is no review stays empty
	return resp.StatusCode, nil
}

// checkEKSToken applies the rules by which EKS judges a token, before the cluster says nothing but 401.
func (e *examination) checkEKSToken(bearer string) (Finding, bool) {
	encoded, ok := strings.CutPrefix(bearer, "k8s-aws-v1.")
	if !ok {
		return Finding{}, false
	}
	if err := eksTokenError(encoded, e.Now()); err != nil {
		return fail("A19", "report this: the library has made it", "the token for EKS is malformed: %v", err), true
	}
	return Finding{}, false
}

// eksTokenError is what aws-iam-authenticator checks before it asks STS.
func eksTokenError(encoded string, now time.Time) error {
	const maxToken, maxExpires, life = 4096, 900, 15 * time.Minute
	if len(encoded) > maxToken {
		return fmt.Errorf("it is longer than %d bytes", maxToken)
	}
	content, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return errors.New("it is not unpadded base64url")
	}
	u, err := url.Parse(string(content))
	if err != nil || u.Scheme != "https" || u.Path != "/" || !awsname.IsSTSHost(u.Hostname()) {
		return errors.New("it is no https URL of AWS STS with the path /")
	}
	seen := map[string]string{}
	query := u.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		key, values := strings.ToLower(name), query[name]
		if _, twice := seen[key]; twice || len(values) != 1 {
			return errors.New("a parameter is there twice")
		}
		switch key {
		case "action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-security-token",
			"x-amz-signature", "x-amz-signedheaders":
		default:
			return fmt.Errorf("the parameter %.50q has no place in it", key)
		}
		seen[key] = values[0]
	}
	expires, err := strconv.Atoi(seen["x-amz-expires"])
	signed, dateErr := time.Parse("20060102T150405Z", seen["x-amz-date"])
	switch {
	case seen["action"] != "GetCallerIdentity":
		return errors.New("its action is not GetCallerIdentity")
	case !strings.Contains(";"+strings.ToLower(seen["x-amz-signedheaders"])+";", ";x-k8s-aws-id;"):
		return errors.New("x-k8s-aws-id is not signed")
	case err != nil || expires < 0 || expires > maxExpires:
		return errors.New("x-amz-expires is not between 0 and 900")
	case dateErr != nil || !now.Before(signed.Add(life)):
		return errors.New("it is older than 15 minutes")
	}
	return nil
}
