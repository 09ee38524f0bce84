import { request } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';

const pingTimeoutMs = 1_000;

/** Whether a Docker daemon answers where `DOCKER_HOST` says, or at the usual sockets; asks each for up to 1 s. */
export async function dockerAnswers(): Promise<boolean> {
  const host = process.env['DOCKER_HOST'];
  const endpoints = host
    ? [host]
    : [
        'unix:///var/run/docker.sock',
        `unix://${join(process.env['XDG_RUNTIME_DIR'] ?? '/run', 'docker.sock')}`,
        `unix://${join(homedir(), '.docker/run/docker.sock')}`,
      ];
  for (const endpoint of endpoints) if (await answersPing(endpoint)) return true;
  return false;
}

async function answersPing(endpoint: string): Promise<boolean> {
  const target = endpoint.startsWith('unix://')
    ? { socketPath: endpoint.slice('unix://'.length) }
    : { host: new URL(endpoint).hostname, port: new URL(endpoint).port };
  return new Promise((resolve) => {
    const ping = request({ ...target, path: '/_ping', timeout: pingTimeoutMs }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.on('timeout', () => ping.destroy());
    ping.on('error', () => resolve(false));
    ping.on('close', () => resolve(false));
    ping.end();
  });
}
