// Package azblob keeps the documents of an issuer in a container of Azure Blob
// Storage, for programs that run an [issuer.Publisher]. The example of the
// package writes and reads a document.
//
// The container $web is the static website of its account. The issuer is the
// website's address and the prefix, such as
// https://myaccount.z1.web.core.windows.net/cluster-1. So the account needs no
// anonymous access to blobs. The publisher needs the role Storage Blob Data
// Contributor on the container.
package azblob
