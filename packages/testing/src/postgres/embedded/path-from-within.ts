import type { ServerAccount } from './server-account.js';

/**
 * The name by which a server process that runs inside `dataDirectory` reaches it.
 *
 * When root starts the server under another account, a folder above the data directory may be closed to that account
 * (a home directory that only its owner may enter). The process is then put into the data directory while it is still
 * root and names it by Linux's link to its own working directory, which is followed without passing the folders above.
 * PostgreSQL never leaves its data directory, and neither do the processes that it forks. So the data stays in the
 * folder that the caller chose, with no capability, user namespace or changed mode needed.
 */
export function pathFromWithin(dataDirectory: string, account: ServerAccount | undefined): string {
  return account && process.platform === 'linux' ? '/proc/self/cwd' : dataDirectory;
}
