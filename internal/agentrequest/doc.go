// Package agentrequest reads, records and approves the CertificateSigningRequests of clusters' agents. Package registration/csr does so as
// the hub, and package hubadmin for its administrators.
package agentrequest
