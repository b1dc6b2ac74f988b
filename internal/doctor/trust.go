package doctor

import (
	"context"
	"time"
)

// Claims are the claims of a ServiceAccount token (RFC 7519, and kubernetes.io). They prove nothing: the doctor verifies no
// signature before it reads them.
type Claims struct {
	Issuer, Subject string
	Audiences       []string
	// Namespace and ServiceAccount are parts of Subject.
	Namespace, ServiceAccount string
	IssuedAt, Expiry          time.Time
	// KeyID is the kid of the header, Algorithm its alg.
	KeyID, Algorithm string
}

// TrustQuery is what a check compares with what a cloud trusts.
type TrustQuery struct {
	Claims Claims
	// Identity is that of auth.Provider.GetIdentity: a role ARN, a client ID, an e-mail address.
	Identity string
	// Annotations are those of the ServiceAccount, with the caller's laid over them.
	Annotations map[string]string
}

// Trust examines what a cloud trusts. The package trust/aws implements it: live, with the login of the person who runs the doctor,
// or from files. An implementation reads once and serves one examination.
type Trust interface {
	// Anchor examines whether the cloud trusts the token's issuer for its audience: the OIDC provider.
	Anchor(ctx context.Context, q TrustQuery) Finding
	// Rule examines whether the identity admits the token: the role's trust policy.
	Rule(ctx context.Context, q TrustQuery) Finding
}

// Access explains why an EKS cluster does not admit a role. The package trust/aws implements it.
type Access interface {
	// Access is called after the cluster has answered 401. It returns a failure of class ClusterRefusesIdentity if the cause is known, or narrowed down
	// to the Causes of the finding. Unknown means that the cluster's access entries could not be read, and says why.
	Access(ctx context.Context, clusterARN, roleARN string) Finding
}
