package aws

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
)

const (
	opCluster = "get access to the EKS cluster"

	bearerPrefix = "k8s-aws-v1."
	// maxBearer is the limit of the API server, in bytes.
	maxBearer = 4096
	// emptySHA256 is the hash of a request without a body.
	emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	// bearerQuery is the query that the server accepts. It refuses more than
	// 900 seconds in X-Amz-Expires, and goes by the date of the signature.
	bearerQuery = "Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Expires=900"
)

var _ provider.RESTConfigProvider = (*Provider)(nil)

// clusterOf returns region and name of the cluster. The options hold its ARN,
// or its name in the region of STS.
func (p *Provider) clusterOf(opts *provider.Options) (awsname.ClusterARN, error) {
	name, resource := clusterName(opts), opts.ClusterResource
	if name == "" && awsname.ValidClusterName(resource) {
		name, resource = resource, ""
	}
	if resource == "" {
		if name == "" {
			return awsname.ClusterARN{}, self.Misconfigured(
				"give its ARN, or its name and region",
				"the name of the EKS cluster is not known").About("auth.WithClusterResource", "aws.WithClusterName",
				"auth.WithSTSRegion")
		}
		region := p.stsRegion(opts)
		partition, ok := awsname.PartitionOf(region)
		if !ok {
			return awsname.ClusterARN{}, self.Misconfigured("set the cluster's region",
				"%.100q is not a region of a known partition of AWS", region).About("auth.WithSTSRegion")
		}
		return awsname.ClusterARN{Partition: partition.Name, Region: region, Name: name}, nil
	}
	arn, err := awsname.ParseClusterARN(resource)
	if err != nil {
		return awsname.ClusterARN{}, self.Misconfigured("use arn:aws:eks:<region>:<account>:cluster/<name>",
			"%.300q is not the ARN of an EKS cluster: %v", opts.ClusterResource, err)
	}
	if name != "" && name != arn.Name && !isClusterID(name) {
		return awsname.ClusterARN{}, self.Misconfigured("leave the name out",
			"the cluster's ARN names %q, but the name is %q", arn.Name, name).About("aws.WithClusterName")
	}
	return arn, nil
}

// GetAccessTokenOptionsForCluster asks for one token, from STS in the cluster's
// region unless the caller chose a region. Only the bearer depends on the
// cluster's name.
func (p *Provider) GetAccessTokenOptionsForCluster(opts *provider.Options) (provider.ClusterAccess, error) {
	access := provider.ClusterAccess{AccessTokens: [][]provider.Option{nil}, CacheKey: clusterName(opts), TakesAll: true}
	if opts.STSRegion != "" && isPlainCluster(opts.ClusterResource) && access.CacheKey == "" {
		return access, nil
	}
	cluster, err := p.clusterOf(opts)
	if err != nil {
		return provider.ClusterAccess{}, err
	}
	access.AccessTokens = [][]provider.Option{inRegion(cluster.Region, opts)}
	return access, nil
}

// NewRESTConfig returns access to an EKS cluster. It calls eks:DescribeCluster
// only if address or certificate authority is missing. The role needs an access
// entry in the cluster.
func (p *Provider) NewRESTConfig(ctx context.Context, accessTokens []auth.Token, opts *provider.Options,
) (*auth.RESTConfig, error) {
	token, err := FromToken(accessTokens[0])
	if err != nil {
		return nil, err
	}
	cluster, err := p.clusterOf(opts)
	if err != nil {
		return nil, err
	}
	address, ca, id := opts.ClusterAddress, []byte(opts.CAData), cmp.Or(clusterName(opts), cluster.Name)
	if address == "" || len(ca) == 0 {
		if address, ca, id, err = p.describeCluster(ctx, cluster, token, opts); err != nil {
			return nil, err
		}
	}
	cluster.Name = id
	bearer, expiry, err := clusterBearer(ctx, cluster, token, time.Now())
	if err != nil {
		return nil, err
	}
	return provider.NewRESTConfig(address, bearer, ca, expiry), nil
}

// isClusterID recognizes the ID of a local cluster on AWS Outposts, a UUID.
func isClusterID(s string) bool {
	const length, hyphens = 36, 4
	return len(s) == length && strings.Count(s, "-") == hyphens && allOf(s, "-") && s[8] == '-' && s[13] == '-' &&
		s[18] == '-' && s[23] == '-'
}

// describeCluster asks EKS for address and certificate authority, and for the
// name that the cluster's authenticator has: the ID of a local cluster on AWS
// Outposts, else the name of the cluster.
func (p *Provider) describeCluster(ctx context.Context, cluster awsname.ClusterARN, token *Token,
	opts *provider.Options,
) (address string, ca []byte, id string, err error) {
	o := eks.Options{Region: cluster.Region, HTTPClient: p.clients.For(opts), Credentials: token.provider(),
		Retryer: p.newRetryer()}
	o.EndpointOptions.UseFIPSEndpoint = fips(p.UseFIPSEndpoint)
	o.EndpointOptions.UseDualStackEndpoint = dualStack(p.UseDualStackEndpoint)
	out, err := eks.New(o).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &cluster.Name})
	if err != nil {
		return "", nil, "", clusterError(err, cluster, token)
	}
	if out.Cluster == nil {
		return "", nil, "", unusable("it holds no cluster")
	}
	given := clusterName(opts)
	switch id = cmp.Or(aws.ToString(out.Cluster.Id), cluster.Name); {
	case id != cluster.Name && !isClusterID(id):
		return "", nil, "", unusable("it holds the cluster ID %.100q", id)
	case given != "" && given != cluster.Name && given != id:
		return "", nil, "", self.Misconfigured("leave the name out",
			"the ID of the cluster %q is %q, but the name is %q", cluster.String(), id, given).About("aws.WithClusterName")
	}
	address, ca, err = readCluster(out.Cluster, cluster, opts)
	return address, ca, id, err
}

// readCluster returns address and certificate authority of the cluster. A given
// address has to be the cluster's own, and a given CA wins (RFC-0010, "API
// Changes").
func readCluster(c *types.Cluster, cluster awsname.ClusterARN,
	opts *provider.Options) (address string, ca []byte, err error) {
	endpoint, encoded := aws.ToString(c.Endpoint), ""
	if c.CertificateAuthority != nil {
		encoded = aws.ToString(c.CertificateAuthority.Data)
	}
	if c.Status == types.ClusterStatusCreating || endpoint == "" || opts.CAData == "" && encoded == "" {
		return "", nil, self.Unavailable(opCluster, "wait until the cluster is active",
			"the cluster %q has no address or no certificate authority yet; its status is %.50q", cluster.String(), c.Status)
	}
	if name := aws.ToString(c.Name); name != "" && name != cluster.Name {
		return "", nil, unusable("it holds the cluster %.100q instead of %q", name, cluster.Name)
	}
	if arn := aws.ToString(c.Arn); arn != "" && cluster.Account != "" && arn != cluster.String() {
		return "", nil, self.Misconfigured("correct the ARN of the cluster, or use a role of its account",
			"EKS finds the cluster %.300q instead of %q with this role", arn, cluster.String())
	}
	if address, err = provider.ParseClusterAddress(endpoint); err != nil {
		return "", nil, unusable("its endpoint %.300q is not an address", redact.URL(endpoint))
	}
	if opts.ClusterAddress != "" && opts.ClusterAddress != address {
		return "", nil, self.Misconfigured("correct the address, or leave it out",
			"the address %.300q is not that of the cluster %q, which is %q", opts.ClusterAddress, cluster.String(), address)
	}
	if opts.CAData != "" {
		return address, []byte(opts.CAData), nil
	}
	ca, err = base64.StdEncoding.DecodeString(encoded)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return "", nil, unusable("its certificate authority is not PEM in base64")
	}
	return address, ca, nil
}

func unusable(format string, args ...any) error {
	return self.Unusable(opCluster, "EKS", format, args...)
}

func clusterError(err error, cluster awsname.ClusterARN, token *Token) error {
	e := serviceError(err, opCluster, token)
	e.Message = fmt.Sprintf("cluster %q: %s", cluster.String(), e.Message)
	switch e.Code {
	case "ResourceNotFoundException":
		e.Remedy = "correct account, region and name in the cluster's ARN, and use a role of that account"
	case "AccessDeniedException":
		e.Remedy = "allow the role eks:DescribeCluster on the cluster, or give address and certificate authority"
	}
	return e
}

// clusterBearer returns a signed request to STS for this cluster only. The API
// server sends it to learn the identity that signed it (aws-iam-authenticator,
// pkg/token). It expires with the credentials that signed it.
func clusterBearer(ctx context.Context, cluster awsname.ClusterARN, token *Token,
	now time.Time) (string, time.Time, error) {
	partition, _ := awsname.PartitionOf(cluster.Region) // every ClusterARN has a region with a partition
	url := "https://sts." + cluster.Region + "." + partition.Suffix + "/?" + bearerQuery
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", time.Time{}, err
	}
	req.Header.Set("x-k8s-aws-id", cluster.Name)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, token.Credentials(), req, emptySHA256, "sts", cluster.Region, now)
	if err != nil {
		return "", time.Time{}, self.Unavailable(opCluster, "",
			"the request for the cluster's token cannot be signed: %T", err)
	}
	bearer := bearerPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed))
	if len(bearer) > maxBearer {
		return "", time.Time{}, self.Misconfigured("use fewer session tags and no session policy",
			"the cluster's token has %d bytes, and EKS accepts %d: the session token is too long", len(bearer), maxBearer)
	}
	return bearer, token.endsBy(now.Add(signatureLife)), nil
}
