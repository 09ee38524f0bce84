/** The environment of the server's programs: none of the caller's `PG…` variables, and messages in English. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C' };
}
