-- Records who has changed what, when and why.
INSERT INTO holdfast_audit (at, actor, action, projection, subject, note)
VALUES (:at, :actor, :action, :projection, :subject, :note)
