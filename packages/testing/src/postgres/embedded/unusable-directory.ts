import { PostgresServerError } from '../postgres-server-error.js';
import type { Cluster } from './cluster.js';

const noFileCall = /^(spawn|connect|listen|getaddrinfo|kill)/;

/** The error for a fault that the system met with a file in the server's folder; any other error as it is. */
export function asUnusableDirectory(error: unknown, directory: string): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (syscall === undefined || noFileCall.test(syscall)) return error;
  const user = process.getuid === undefined ? 'this user' : `the user with id ${process.getuid()}`;
  const remedy =
    code === 'EACCES' || code === 'EPERM' ? `Give the folder with all files to ${user}` : 'Correct that';
  return new PostgresServerError(
    'directory-unusable',
    `The folder ${directory} of the embedded PostgreSQL server cannot be used by ${user}: ${message}. ` +
      `${remedy}, or use another folder.`,
    { cause: error },
  );
}

/** The error for a cluster of which one of both parts, data directory or password, is missing. */
export function incompleteCluster(fault: string, clusterDirectory: string): PostgresServerError {
  return new PostgresServerError(
    'directory-unusable',
    `The embedded PostgreSQL server cannot start: ${fault}. ` +
      `Restore it, or remove ${clusterDirectory} to begin with empty databases.`,
  );
}

/** The error for a password that the cluster's own server refuses. */
export function refusedPassword(cluster: Cluster, cause: unknown): PostgresServerError {
  return new PostgresServerError(
    'directory-unusable',
    `The PostgreSQL server on ${cluster.dataDirectory} refuses the password in ${cluster.passwordFile}: ` +
      `${(cause as Error).message}. Restore the file that belongs to this data directory, or use another folder.`,
    { cause },
  );
}
