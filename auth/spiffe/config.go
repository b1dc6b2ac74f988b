package spiffe

import (
	"github.com/workloadid/workloadid/auth"
)

// Config configures a source. The zero value is ready for use. All fields
// belong to the controller.
type Config struct {
	// Issuer is the claim iss of the JWT-SVIDs, jwt_issuer in the configuration
	// of a SPIRE server. A token of another issuer is refused. If Issuer is
	// empty, the source accepts any issuer, and the receiver of the token
	// decides.
	Issuer string
	// AllowNoIssuer accepts JWT-SVIDs without the claim iss, SPIRE's default.
	// AWS, Microsoft Entra ID and Google Cloud find the keys by this claim.
	// A service that gets the keys of the trust domain in another way needs no
	// claim. AllowNoIssuer excludes Issuer.
	AllowNoIssuer bool
	// ClusterID names the cluster whose ServiceAccounts the agent of a
	// BrokerIssuer knows, with the text of auth.WithClusterID. The source
	// refuses a call whose text differs. If ClusterID is empty, it refuses
	// every such text. The ServiceAccount of another cluster can have the same
	// namespace, name and UID. A WorkloadIssuer refuses a ClusterID.
	ClusterID string
}

// check reports a conflict when a source is made.
func (c *Config) check() error {
	if c.Issuer != "" && c.AllowNoIssuer {
		return fail(auth.ErrMisconfigured, "leave one out", "an issuer and tokens without one exclude each other").
			About(optionIssuer, optionNoIssuer)
	}
	return nil
}

const (
	optionIssuer   = "spiffe.Config.Issuer"
	optionNoIssuer = "spiffe.Config.AllowNoIssuer"
	optionCluster  = "spiffe.Config.ClusterID"
	optionBroker   = "spiffe.NewBrokerIssuer"
	optionWorkload = "spiffe.NewWorkloadIssuer"
	optionConn     = "spiffe.NewBrokerConn"
)
