// Package agentrequest reads, records and approves the CertificateSigningRequests of clusters' agents. Package registration/csr does so as
// the hub, and wid hub for its administrators.
package agentrequest
