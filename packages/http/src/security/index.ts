// What protects a service from its clients.
export type { HttpLog } from '../http-log.js';
