// Package awstrust reads what an AWS account trusts and whom an EKS cluster lets in, for the checks 19, 20 and 24 of package
// doctor. It uses the caller's own login, not that of the ServiceAccount under examination, and only reads:
//
//	reader := &awstrust.Reader{}
//	report := doctor.Run(ctx, doctor.Config{Provider: &aws.Provider{}, Trust: reader, Access: reader, ...})
//
// A run makes up to four calls for the trust (sts:GetCallerIdentity, iam:GetRole, iam:GetOpenIDConnectProvider, and
// iam:ListOpenIDConnectProviders if that one does not exist) and up to three for a cluster (eks:DescribeCluster,
// eks:DescribeAccessEntry, eks:ListAssociatedAccessPolicies). What the login may not do, or what lies in another account
// than the login's, is told as such.
package awstrust
