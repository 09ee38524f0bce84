import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';

import { root } from './workspace.mjs';

/** The workspace's port. The system frees it when the process that listens there ends, even if that was killed. */
const firstPort = 20_000 + (createHash('sha256').update(root).digest().readUInt16BE() % 10_000);
/** How long the holder of the port may take to say for which workspace it works. */
const answerMs = 5_000;

/**
 * Does the work while no other command does such work in this workspace, because installing and building remove and write files
 * that the others use. Waits for earlier commands, and reports that.
 */
export async function alone(work) {
  const waiting = new Set();
  const server = await listen((socket) => waiting.add(socket.on('error', () => undefined)));
  try {
    return await work();
  } finally {
    server.close();
    for (const socket of waiting) socket.destroy();
  }
}

async function listen(onWaiting) {
  for (let port = firstPort; ;) {
    const server = createServer((socket) => {
      onWaiting(socket);
      socket.write(root);
    });
    server.listen(port, '127.0.0.1');
    const error = await once(server, 'listening').catch((reason) => reason);
    if (error.code === undefined) return server;
    if (error.code !== 'EADDRINUSE') throw error;
    if (!(await isReleased(port))) port++;
  }
}

/** Waits until another command of this workspace releases the port; returns `false` at once when another program has it. */
async function isReleased(port) {
  const socket = connect(port, '127.0.0.1').setTimeout(answerMs, () => socket.destroy(new Error('silent')));
  try {
    const [holder] = await once(socket, 'data');
    if (String(holder) !== root) return false;
    console.log('Waiting for another command that installs or builds here …');
    await once(socket.setTimeout(0), 'close');
    return true;
  } catch (error) {
    return error.message !== 'silent';
  } finally {
    socket.destroy();
  }
}
