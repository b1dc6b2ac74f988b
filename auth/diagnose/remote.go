package diagnose

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/transport"
)

// Check 24.
func (e *examination) checkCluster(ctx context.Context) Finding {
	if e.Cluster == "" && e.ClusterAddress == "" {
		return skip("no cluster was named")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	opts := append(e.options(), auth.WithClusterResource(e.Cluster), auth.WithClusterAddress(e.ClusterAddress), auth.WithCAData(e.ClusterCA))
	access, err := auth.GetRESTConfig(ctx, e.Provider, opts...)
	if err != nil {
		f := refusal(err)
		if f.Class == "" && f.Result == Fail {
			f.Class = classOfCluster(e.Provider.GetName())
		}
		return f
	}
	if f, bad := e.checkEKSToken(access.BearerToken()); bad {
		return f
	}
	status, user, err := e.whoAmI(ctx, access)
	id := map[string]string{"aws": "A19", "azure": "Z18", "gcp": "G18"}[e.Provider.GetName()]
	class, _ := auth.ClassByID(firstOf(id, "K6"))
	switch {
	case err != nil:
		return unknown("the cluster cannot be reached: "+transport.Message(err, access.BearerToken()), "check address and certificate authority")
	case status == http.StatusCreated || status == http.StatusOK:
		return pass("the cluster knows you as %s", shown(user)).with(same("user", user))
	case status == http.StatusUnauthorized:
		f := fail(class.ID, class.Remedy, "401: the token is well formed, but the cluster does not know who it is").
			with(differs("identity", firstOf(e.who(), "unknown"), "known to the cluster"))
		f.Causes, f.StatusCode = class.Causes, status
		return f
	case status == http.StatusForbidden:
		f := fail(class.ID, class.Remedy, "403: the cluster knows you, but you may do nothing")
		f.Causes, f.StatusCode = class.Causes, status
		return f
	}
	return unknown(fmt.Sprintf("the cluster answers %d", status), "try again")
}

func (e *examination) who() string {
	if t, ok := e.gained.(interface{ AssumedRoleARN() string }); ok {
		return t.AssumedRoleARN()
	}
	return e.serviceAccount().Annotations[e.cloud.required]
}

func (e *examination) whoAmI(ctx context.Context, access *auth.RESTConfig) (status int, user string, err error) {
	client, err := e.pool.Client(e.resolved().ProxyURL, string(access.CAData()))
	if err != nil {
		return 0, "", err
	}
	review := authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	body, err := json.Marshal(review)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	address := strings.TrimSuffix(access.Host(), "/") + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+access.BearerToken())
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return 0, "", err
	}
	if json.Unmarshal(answer, &review) == nil {
		user = review.Status.UserInfo.Username
	}
	return resp.StatusCode, user, nil
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
	for key, values := range u.Query() {
		key = strings.ToLower(key)
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
