// Package awsirsa registers clusters on Amazon EKS by AWS IAM, for hubs that issue no client certificates. The agent has an IAM role of
// its own account. Once the hub accepts the cluster, it makes a role for it in the hub's account, which only the agent's role may assume
// and which the hub's API server maps to the groups of the cluster.
//
// On the managed cluster, [Driver] is one of the drivers of a registration.Agent:
//
//	driver, err := awsirsa.New(awsirsa.Options{
//		Hub:     "arn:aws:eks:eu-central-1:111111111111:cluster/hub",
//		Managed: "arn:aws:eks:eu-west-1:222222222222:cluster/shop",
//	})
//
// On the hub, [HubDriver] is one of the drivers of a registration.Hub:
//
//	driver, err := awsirsa.NewHub(awsirsa.HubOptions{
//		Hub: "arn:aws:eks:eu-central-1:111111111111:cluster/hub",
//		IAM: iam.NewFromConfig(config),
//		EKS: eks.NewFromConfig(config),
//	})
//
// [AgentRole] and [HubRole] say which roles have to exist before, and [CheckHub] and [CheckManaged] where this auth type works.
//
// # Ownership
//
// The hub tags each role and each access entry with its own ARN and with the name of the ManagedCluster. It changes and deletes
// nothing that lacks these tags, whatever name it has. So two clusters cannot share an ARN: the second one finds the role of the first
// and is refused. An entry in aws-auth has no tags; there the user name marks it.
//
// # Calls
//
// If nothing has drifted, [HubDriver.Grant] calls GetRole, GetRolePolicy and DescribeAccessEntry once each; the registration.Hub
// calls it once an hour and after a restart. A first grant and a revocation make five calls each. With [AWSAuth] the hub calls IAM only:
// two calls, and three for a first grant and a revocation.
package awsirsa
