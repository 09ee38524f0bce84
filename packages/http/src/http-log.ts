/** Where lines are logged. pino's logger is one. */
export interface HttpLog {
  /** Logs what helps only to find a fault. */
  debug(fields: object, message: string): void;
  /** Logs what happens in ordinary operation. */
  info(fields: object, message: string): void;
  /** Logs what needs attention soon. */
  warn(fields: object, message: string): void;
  /** Logs what needs attention now. */
  error(fields: object, message: string): void;
}
