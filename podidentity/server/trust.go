package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// Lengths of names of sessions, in characters.
const (
	maxSessionName = 64
	sessionHash    = 32
)

// SessionName returns the session name of a ServiceAccount,
// "<cluster>.<namespace>.<service account>". Session names are unique, because
// clusters and namespaces contain no dot. A name that is too long for AWS ends
// in "@" and a hash of the whole name. No other name contains an "@".
func SessionName(cluster, namespace, serviceAccount string) string {
	whole := cluster + "." + namespace + "." + serviceAccount
	if len(whole) <= maxSessionName {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	return whole[:maxSessionName-sessionHash-1] + "@" + hex.EncodeToString(sum[:])[:sessionHash]
}

func checkCluster(name, cluster string) error {
	if errs := validation.IsDNS1123Label(cluster); len(errs) > 0 {
		return fmt.Errorf("%s %.100q: %s", name, cluster, errs[0])
	}
	return nil
}

type policyDocument struct {
	Version   string
	Statement []policyStatement
}

type policyStatement struct {
	Effect    string
	Principal map[string]string
	Action    string
	Condition map[string]map[string]string
}

// TrustPolicy returns the trust policy of a binding's role, in JSON. It lets
// serverRole, the ARN of the server's own role, assume the role for the pods of
// this ServiceAccount. cluster is [Options.Cluster].
//
// KEP-14 compares aws:userid, but that identifies the requester. The policy
// compares sts:RoleSessionName instead.
func TrustPolicy(cluster, serverRole string, b *v1alpha1.IAMBinding) ([]byte, error) {
	if err := checkCluster("cluster", cluster); err != nil {
		return nil, err
	}
	for _, arn := range []string{serverRole, b.Spec.AWS.RoleARN} {
		if _, err := aws.ParseRoleARN(arn); err != nil {
			return nil, fmt.Errorf("%.640q is not the ARN of a role: %w", arn, err)
		}
	}
	name := b.Spec.ServiceAccountRef.Name
	assume := map[string]string{"sts:RoleSessionName": SessionName(cluster, b.Namespace, name)}
	if id := b.Spec.AWS.ExternalID; id != "" {
		assume["sts:ExternalId"] = id
	}
	const requestTag = "aws:RequestTag/"
	tag := map[string]string{
		requestTag + tagNamespace:      b.Namespace,
		requestTag + tagServiceAccount: name,
		requestTag + tagCluster:        cluster,
	}
	statement := func(action string, equals map[string]string) policyStatement {
		return policyStatement{Effect: "Allow", Principal: map[string]string{"AWS": serverRole}, Action: action,
			Condition: map[string]map[string]string{"StringEquals": equals}}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(policyDocument{"2012-10-17",
		[]policyStatement{statement("sts:AssumeRole", assume), statement("sts:TagSession", tag)}})
	return out.Bytes(), err
}
